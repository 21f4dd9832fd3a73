"""``pilotfish bench`` from end to end: what it measures by default, its page, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from command_line import CommandLine

QUICK = ("--pass-repeats", 1, "--repeats", 1, "--threads", 1)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Eight prompts of two kinds."""
    file = tmp_path / "prompts.jsonl"
    lines = [{"prompt": f"abc abc {index}", "category": "ab"[index % 2]} for index in range(8)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_all_that_is_measured_is_in_the_report_and_on_the_page(
    tiny_bundle: Path, cli: CommandLine, prompts: Path, tmp_path: Path
) -> None:
    page, numbers = tmp_path / "report.html", tmp_path / "report.json"
    sweeps = ("--context", "20,100", "--num-sequences", 2)
    files = ("--html", page, "--json", numbers)
    finished = cli("bench", tiny_bundle, "--prompts", prompts, "--new-tokens", 12, *QUICK, *sweeps, *files)
    assert finished.exit_code == 0, finished.err
    report: dict[str, Any] = json.loads(numbers.read_text())
    assert report["schema"] == "pilotfish-bench/3"
    assert report["outputs_equal"] is True
    for run in report["runs"]:
        assert sum(run["shares"].values()) == pytest.approx(1, abs=0.02)
        assert 0 < run["gap_ms"]["p50"] <= run["gap_ms"]["p95"] <= run["gap_ms"]["p99"]
        assert len(run["speeds"]) == len(report["prompts"]["order"]) == 8
        assert run["ratio"]["low"] <= run["ratio"]["median"] <= run["ratio"]["high"]
        assert run["predicted_ratio"] > 0
    plain, auto = report["runs"][0], report["runs"][-1]
    assert (plain["ratio"]["median"], plain["acceptance_by_source"]) == (1.0, {})
    assert auto["acceptance_by_source"].keys() <= {"lookup", "draft"}
    assert report["roofline"]["bytes_per_second"] > 1e8
    assert report["roofline"]["floor_ms"]["1"] > 0
    assert report["memory"]["planned_bytes"] == sum(report["memory"]["parts"].values())
    tokens = [token for each in report["timeline"]["rounds"] for token in each["tokens"]]
    assert len(tokens) == 11  # the first is the prompt's pass's
    assert [each["context"] for each in report["contexts"]] == [20, 100]
    assert {each["mode"] for each in report["sequences"]} == {"plain", "auto"}
    assert all(each["tokens_per_s"] == pytest.approx(2 * each["tokens_per_s_each"]) for each in report["sequences"])
    text = page.read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    for name in ("speed", "kinds", "shares", "passes", "acceptance", "timeline", "contexts", "memory"):
        assert f'<figure id="{name}">' in text
    assert all(line.split(":")[0] in text for line in report["notes"])


def test_the_default_has_six_kinds_and_ends_in_time(tiny_bundle: Path, cli: CommandLine) -> None:
    """The tiny bundle spells letters, so that only the short ones of the 60 prompts fit its context."""
    finished = cli("bench", tiny_bundle, "--new-tokens", 4, *QUICK, "--modes", "lookup", "--seconds", 1, "--json", "-")
    assert finished.exit_code == 0, finished.err
    report = json.loads(finished.out.splitlines()[-1])
    assert [run["mode"] for run in report["runs"]] == ["plain", "lookup"]
    assert report["prompts"]["name"] == "built-in"
    assert report["prompts"]["too_long"] > 0
    assert f"{report['prompts']['too_long']} prompt(s) left out: too long for the context" in finished.err
    assert report["prompts"]["count"] + report["prompts"]["too_long"] == 60


def test_time_that_does_not_suffice_leaves_every_kind_measured(
    tiny_bundle: Path, cli: CommandLine, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilotfish.runtime.cli.bench._MEASURING_SHARE", 0.0)
    limits = ("--new-tokens", 4, "--seconds", 1, "--modes", "lookup")
    finished = cli("bench", tiny_bundle, "--prompts", prompts, *QUICK, *limits, "--json", "-")
    assert finished.exit_code == 0, finished.err
    report = json.loads(finished.out.splitlines()[-1])
    assert report["prompts"]["measured"] == 2
    assert set(report["categories"]) == {"a", "b"}
    assert "the time sufficed for 2 of 8 prompts" in finished.err
    assert "fewer than six pairs of runs allow no conclusion" in finished.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--modes", "head"], "--modes has 'head', this bundle has plain, draft, lookup, lookup+draft, auto"),
        (["--context", "20,x"], "--context has 'x', must be numbers of tokens"),
        (["--context", "250"], "--context 250 and --new-tokens 48 do not fit the context of 256"),
        (["--prompt-tokens", "9", "--prompts", "x"], "--prompts x and --prompt-tokens 9 exclude each other"),
        (["--html", "/nowhere/page.html"], "--html '/nowhere/page.html' cannot be written"),
        (["--num-sequences", "17"], "Invalid value for '--num-sequences'"),
        (["--seconds", "0"], "Invalid value for '--seconds'"),
        (["--seconds", "inf"], "--seconds is inf, must be a number of seconds"),
        (["--context", "9" * 5000], "--context has '999"),
        (["--context", "\u0663"], "--context has '\u0663', must be numbers"),
        (["--html", "-"], "--html '-' names no file"),
        (["--top-p", "0.5"], "top_p is 0.5, but temperature 0 takes the likeliest token anyway"),
        (["--top-k", "4"], "top_k is 4, but temperature 0 takes the likeliest token anyway"),
        (
            ["--max-context", "12", "--prompt-tokens", "4", "--new-tokens", "2"],
            "the context holds 12 tokens, and passes of 16 are timed: give a larger --max-context",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_and_nothing_is_written(
    tiny_bundle: Path, cli: CommandLine, tmp_path: Path, flags: list[str], words: str
) -> None:
    numbers = tmp_path / "numbers.json"
    finished = cli("bench", tiny_bundle, *flags, "--json", numbers)
    assert finished.exit_code == 2
    assert words in " ".join(finished.err.split())
    assert not numbers.exists()


def test_pictures_need_their_library_and_a_folder(
    tiny_bundle: Path, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    finished = cli("bench", tiny_bundle, "--png", tmp_path)
    assert (finished.exit_code, "--png needs the package resvg-py" in finished.err) == (2, True)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    finished = cli("bench", tiny_bundle, "--png", tmp_path / "none")
    assert (finished.exit_code, "is no folder: make it first" in finished.err) == (2, True)


def test_outputs_overwrite_nothing_that_is_read(
    tiny_bundle: Path, cli: CommandLine, prompts: Path, tmp_path: Path
) -> None:
    both = tmp_path / "both"
    for flags in (
        ("--html", both, "--json", both),
        ("--json", prompts),
        ("--json", tiny_bundle / "manifest.json"),
        ("--html", tiny_bundle / "target.onnx"),
    ):
        finished = cli("bench", tiny_bundle, "--prompts", prompts, *flags)
        assert (finished.exit_code, "would overwrite" in finished.err) == (2, True), flags
    assert not both.exists()


def test_files_are_written_also_where_nobody_reads_the_tables(tiny_bundle: Path, prompts: Path, tmp_path: Path) -> None:
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    flags = ("--prompts", prompts, "--new-tokens", 4, *QUICK, "--modes", "plain", "--html", page, "--json", numbers)
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "pilotfish", "bench", tiny_bundle, *flags]
        done = subprocess.run([*map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "output cannot be written: No space left on device" in done.stderr
    assert json.loads(numbers.read_text())["schema"] == "pilotfish-bench/3"
    assert "</html>" in page.read_text()


def test_numbers_are_written_also_where_the_page_cannot_be(
    tiny_bundle: Path, cli: CommandLine, prompts: Path, tmp_path: Path
) -> None:
    numbers = tmp_path / "numbers.json"
    flags = ("--prompts", prompts, "--new-tokens", 4, *QUICK, "--modes", "plain", "--html", "/dev/full")
    finished = cli("bench", tiny_bundle, *flags, "--json", numbers)
    assert finished.exit_code == 2
    assert "--html '/dev/full' cannot be written: No space left on device" in finished.err
    assert "tokens/s, median" in finished.out
    assert json.loads(numbers.read_text())["runs"]


def test_a_draft_with_fewer_positions_is_timed_within_them(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    """The draft of the tiny bundle has 192 positions, the target 256."""
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"prompt": "x" * 220, "category": "a"}) + "\n")
    finished = cli(
        "bench", tiny_bundle, "--prompts", file, "--new-tokens", 4, *QUICK, "--modes", "plain", "--json", "-"
    )
    assert finished.exit_code == 0, finished.err
    assert json.loads(finished.out.splitlines()[-1])["pass_context"] == 191
