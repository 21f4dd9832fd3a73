"""What differs between two benchmarks, beyond noise."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.runtime.report.compare import compare

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

NUM_PROMPTS = 12


def report(factor: float = 1.0, *, noise: float = 0.01, modes: tuple[str, ...] = ("plain", "draft")) -> dict[str, Any]:
    """A benchmark whose prompts differ a lot, and whose speeds are ``factor`` times others', but for noise."""
    speeds = [factor * (50 + 20 * index) * (1 + noise * (-1) ** index) for index in range(NUM_PROMPTS)]
    run = {"speeds": speeds, "ttft_ms": 10.0, "acceptance_rate": None, "acceptance_length": 1.0}
    return {
        "schema": "pilotfish-bench/3",
        "machine": {"cpu": "one"},
        "bundle": {"path": "a"},
        "settings": {"new_tokens": 48, "seed": 0},
        "prompts": {"sha256": "0" * 64, "order": list(range(NUM_PROMPTS))},
        "runs": [run | {"mode": mode} for mode in modes],
        "verify_ms": {"1": 4.0},
        "memory": {"peak_bytes": 10**8},
        "load": {"seconds": 1.0},
        "conditions": {"is_busy": False},
    }


def test_pairs_show_a_small_difference_that_medians_would_not() -> None:
    first, second = report(), report(0.96, noise=0.005)
    (plain, _) = compare(first, second, "b").changes
    assert plain.is_paired
    assert plain.ratio.median == pytest.approx(0.96, abs=0.01)
    assert plain.verdict == "slower"
    second["prompts"]["sha256"] = "1" * 64
    (unpaired, _) = compare(first, second, "b").changes
    assert not unpaired.is_paired
    assert unpaired.verdict == "no difference beyond noise"


def test_a_machine_that_is_slower_as_a_whole_leaves_gains_as_they_are() -> None:
    second = report(0.7)
    second["runs"][1]["speeds"] = [1.1 * speed for speed in second["runs"][1]["speeds"]]
    plain, draft = compare(report(), second, "b").changes
    assert plain.gain is None
    assert draft.verdict == "slower"
    assert draft.gain is not None
    assert draft.gain.median == pytest.approx(1.1)
    assert draft.gain.side == 1


def test_what_was_done_differently_is_no_pair_and_is_named() -> None:
    second = report()
    second["settings"]["seed"] = 1
    second["machine"]["cpu"] = "two"
    found = compare(report(), second, "b")
    assert not found.is_paired
    assert found.facts == (("machine: cpu", "one", "two"), ("settings: seed", "0", "1"))


def test_prompts_are_pairs_by_their_number_whatever_the_order() -> None:
    second = report(1.2)
    second["prompts"]["order"].reverse()
    for run in second["runs"]:
        run["speeds"] = run["speeds"][::-1]
    (plain, _) = compare(report(), second, "b").changes
    assert plain.ratio.median == pytest.approx(1.2)
    assert plain.verdict == "faster"


@pytest.mark.parametrize(
    ("factor", "noise", "limit", "exit_code"),
    [(1.0, 0.01, 0.95, 0), (0.9, 0.01, 0.95, 3), (0.97, 0.01, 0.95, 0), (0.93, 0.2, 0.95, 0), (1.0, 0.01, None, 0)],
    ids=["same", "slower", "slower than allowed by little", "noise", "no limit"],
)
def test_the_exit_code(
    cli: CommandLine, tmp_path: Path, *, factor: float, noise: float, limit: float | None, exit_code: int
) -> None:
    second = report(factor)
    for run in second["runs"]:
        run["speeds"] = [speed * (1 + noise * (-1) ** (index // 2)) for index, speed in enumerate(run["speeds"])]
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, content in zip(files, (report(), second), strict=True):
        file.write_text(json.dumps(content))
    flags = () if limit is None else ("--fail-below", limit)
    finished = cli("compare", *files, *flags, "--html", tmp_path / "page.html", "--json", "-")
    assert finished.exit_code == exit_code, finished.out
    numbers = json.loads(next(line for line in finished.out.splitlines() if line.startswith("{")))
    assert numbers["schema"] == "pilotfish-compare/1"
    assert '<figure id="ratios-1">' in (tmp_path / "page.html").read_text()
    assert (f"below {limit}" in finished.out) is (exit_code == 3)


def broken(change: dict[str, Any]) -> str:
    content = copy.deepcopy(report())
    for path, value in change.items():
        *outer, last = path.split(".")
        place: Any = content
        for key in outer:
            place = place[key][0] if isinstance(place[key], list) else place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "has the schema None, must be 'pilotfish-bench/3'"),
        (broken({"schema": "pilotfish-bench/2"}), "has the schema 'pilotfish-bench/2'"),
        (broken({"memory.peak_bytes": None}), "has no field memory.peak_bytes"),
        (broken({"runs.speeds": None}), "has no field runs.speeds"),
        (broken({"runs": {}}), "a field runs of another type"),
        (broken({"runs.speeds": [1.0]}), "must be one above 0 for each prompt"),
        (broken({"runs.speeds": [0] * NUM_PROMPTS}), "must be one above 0 for each prompt"),
        (broken({"runs.speeds": [5e-324] * NUM_PROMPTS}), "must be one above 0 for each prompt"),
        (broken({"runs.speeds": ["1"] * NUM_PROMPTS}), "must be one above 0 for each prompt"),
        (broken({"runs": []}), "a field runs of another type"),
        (broken({"runs.ttft_ms": float("nan")}), "NaN is no number of JSON"),
        (broken({"runs.ttft_ms": 10**400}), "a field runs.ttft_ms of another type or range"),
        (broken({"runs.mode": "draft"}), "has a mode twice"),
        (broken({"prompts.order": [[]] * NUM_PROMPTS}), "a field prompts.order of another type"),
        (broken({"verify_ms": {"1": "4"}}), "a field verify_ms of another type or range, {'1': '4'}"),
        (broken({"memory.peak_bytes": -1}), "a field memory.peak_bytes of another type or range, -1"),
        ("[" * 100_000, "it is nested too deep"),
        ('{"schema": 1, "schema": 2}', "an object has 'schema' twice"),
    ],
)
def test_files_that_are_no_report(cli: CommandLine, tmp_path: Path, text: str, words: str) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(report()))
    bad.write_text(text)
    finished = cli("compare", good, bad, "--html", tmp_path / "page.html")
    assert finished.exit_code == 2
    assert words in finished.err
    assert not (tmp_path / "page.html").exists()


def test_what_cannot_be_compared(cli: CommandLine, tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, modes in zip(files, (("plain",), ("draft",)), strict=True):
        file.write_text(json.dumps(report(modes=modes)))
    for arguments, words in (
        ((files[0],), "compare has 1 report, must be two or more"),
        ((*files, "--fail-below", 0), "--fail-below is 0.0, must be above 0"),
        ((*files, "--fail-below", 0.9), "no mode in common"),
        ((files[0], *files, "--fail-below", 0.9), "no mode in common"),
        ((*files, "--fail-below", "inf"), "--fail-below is inf, must be above 0"),
        ((*files, "--json", files[0]), "a.json', which is read: give another file"),
        ((*files, "--html", tmp_path / "new", "--json", tmp_path / "new"), "would overwrite what --html writes"),
        ((files[0], tmp_path / "none.json"), "cannot be read"),
    ):
        finished = cli("compare", *arguments)
        assert (finished.exit_code, words in finished.err) == (2, True), finished.err


def test_names_are_shown_as_they_are(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "["
    folder.mkdir()
    first, second = folder / "a].json", tmp_path / "b.json"  # "[/a]" is no end of a style
    hostile = report(modes=("plain", "\x1b]0;title\x07[/x]"))
    hostile["machine"]["cpu"] = "\x1b[2J"
    first.write_text(json.dumps(hostile))
    second.write_text(json.dumps(report()))
    finished = cli("compare", first, second)
    assert finished.exit_code == 0, finished.err
    assert "[/a].json" in finished.out
    assert "\x1b" not in finished.out + finished.err
    assert "\\x1b[2J" in finished.out
    assert "only one of" in finished.err
    assert "draft, " not in finished.out


def test_what_differs_deep_inside_is_named() -> None:
    first, second = report(), report()
    for each, bits in ((first, "int4"), (second, "int8")):
        each["bundle"]["models"] = {"target": {"source": "x" * 500, "formats": {"output": bits}}}
    found = compare(first, second, "b")
    assert found.facts == (("bundle: models: target: formats: output", "int4", "int8"),)
