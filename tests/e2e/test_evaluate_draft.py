"""`pilotfish evaluate-draft` against what generating with a draft really does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pilotfish import Engine

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

NEW_TOKENS = 24


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [{"category": name, "prompt": text} for name, text in (("a", "one"), ("b", "two"), ("b", "three"))]
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("chain", [2, 4])
def test_replayed_acceptance_is_the_real_one(
    tiny_bundle: Path, prompts: Path, cli: CommandLine, tmp_path: Path, chain: int
) -> None:
    numbers = tmp_path / "scores.json"
    fast = ("--new-tokens", NEW_TOKENS, "--pass-repeats", 1, "--threads", 1)
    finished = cli("evaluate-draft", tiny_bundle, "--prompts", prompts, *fast, "--json", numbers)
    assert finished.exit_code == 0, finished.err
    (report,) = json.loads(numbers.read_text())["bundles"]
    scores = {item["category"]: item for item in report["categories"]}
    assert [scores[name]["num_prompts"] for name in ("a", "b", "all")] == [1, 2, 3]
    drafted = accepted = 0
    with Engine(tiny_bundle, threads=1) as engine:
        for text in ("one", "two", "three"):
            message = [{"role": "user", "content": text}]
            stats = engine.chat(message, max_new_tokens=NEW_TOKENS, num_draft_tokens=chain).stats
            drafted, accepted = drafted + stats.num_drafted, accepted + stats.num_accepted
    found = next(item for item in scores["all"]["chains"] if item["chain"] == chain)
    # The engine drafts no token that max_new_tokens would cut; the replay offers them where the answer has them.
    assert found["acceptance_rate"] == pytest.approx(accepted / drafted, abs=0.05)
    assert 0 < scores["all"]["overlap"] < 1
    assert found["speedup"] > 0
    shapes = {item["shape"]: item for item in report["draft"][-1]["shapes"]}
    assert list(shapes) == ["chain of 2", "chain of 4", "dynamic tree", "as many as pay"]
    assert shapes["dynamic tree"]["acceptance_length"] >= shapes["chain of 4"]["acceptance_length"]
    assert [item["category"] for item in report["draft"]] == ["a", "b", "all"]


def test_a_draft_that_is_the_target_is_always_right(
    self_bundle: Path, tiny_bundle: Path, prompts: Path, cli: CommandLine
) -> None:
    fast = ("--new-tokens", 12, "--pass-repeats", 1, "--threads", 1)
    finished = cli("evaluate-draft", self_bundle, tiny_bundle, "--prompts", prompts, *fast, "--json", "-")
    assert finished.exit_code == 0, finished.err
    own, _ = json.loads(finished.out.splitlines()[-1])["bundles"]
    whole = own["categories"][-1]
    assert (whole["agreement"], whole["chains"][0]["acceptance_rate"]) == (1.0, 1.0)
    assert whole["overlap"] == pytest.approx(1.0, abs=1e-6)
    chain = own["draft"][-1]["shapes"][1]
    assert (chain["acceptance_rate"], set(chain["by_position"])) == (1.0, {1.0})
    assert "comparison" in finished.out


def test_sampled_shapes_are_generated(tiny_bundle: Path, prompts: Path, cli: CommandLine) -> None:
    fast = ("--new-tokens", NEW_TOKENS, "--pass-repeats", 1, "--threads", 1, "--temperature", 0.8, "--seed", 5)
    finished = cli("evaluate-draft", tiny_bundle, "--prompts", prompts, *fast, "--json", "-")
    assert finished.exit_code == 0, finished.err
    (report,) = json.loads(finished.out.splitlines()[-1])["bundles"]
    assert report["categories"] == []  # replayed from likeliest tokens, which say nothing of these
    shapes = {item["shape"]: item for item in report["draft"][-1]["shapes"]}
    drafted = accepted = 0
    with Engine(tiny_bundle, threads=1) as engine:
        for text in ("one", "two", "three"):
            options = {"max_new_tokens": NEW_TOKENS, "temperature": 0.8, "seed": 5, "num_draft_tokens": 4}
            stats = engine.chat([{"role": "user", "content": text}], **options).stats
            drafted, accepted = drafted + stats.num_drafted, accepted + stats.num_accepted
    assert shapes["chain of 4"]["acceptance_rate"] == pytest.approx(accepted / drafted)
    refused = cli("evaluate-draft", tiny_bundle, "--prompts", prompts, "--top-p", 2)
    assert (refused.exit_code, "top_p is 2" in refused.err) == (2, True)


def test_bad_input(plain_bundle: Path, tiny_bundle: Path, prompts: Path, tmp_path: Path, cli: CommandLine) -> None:
    finished = cli("evaluate-draft", plain_bundle, "--prompts", prompts)
    assert (finished.exit_code, finished.err.count("\n")) == (2, 1)
    assert "has no draft" in finished.err
    finished = cli("evaluate-draft", tiny_bundle, "--prompts", tmp_path / "missing")
    assert finished.exit_code == 2
    assert "cannot be read" in finished.err


def test_it_writes_a_page_with_advice(
    tiny_bundle: Path, self_bundle: Path, prompts: Path, cli: CommandLine, tmp_path: Path
) -> None:
    fast = ("--new-tokens", 8, "--pass-repeats", 1, "--threads", 1)
    page = tmp_path / "drafts.html"
    finished = cli(
        "evaluate-draft", tiny_bundle, self_bundle, "--prompts", prompts, *fast, "--html", page, "--json", "-"
    )
    assert finished.exit_code == 0, finished.err
    said = json.loads(finished.out.splitlines()[-1])["advice"]
    assert said.startswith(("Ship the draft of", "Ship none of them"))
    assert said in " ".join(finished.out.split())
    assert all(f'<figure id="{name}">' in page.read_text() for name in ("speed", "kinds", "acceptance"))


def test_what_would_be_confused_or_does_not_fit_the_draft_is_said_first(
    tiny_bundle: Path, plain_bundle: Path, prompts: Path, cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text('{"prompt": "one", "category": "all"}\n')
    finished = cli("evaluate-draft", tiny_bundle, "--prompts", file)
    assert (finished.exit_code, "has the category 'all', which is that of all" in finished.err) == (2, True)
    file.write_text(json.dumps({"prompt": "x" * 200, "category": "a"}))  # the draft has 192 positions
    finished = cli("evaluate-draft", tiny_bundle, "--prompts", file, "--new-tokens", 4)
    assert (finished.exit_code, "in the context of 192 of the draft" in finished.err) == (2, True)
    finished = cli("evaluate-draft", tiny_bundle, plain_bundle, "--prompts", prompts)
    assert (finished.exit_code, "has no draft and no head" in finished.err, finished.out) == (2, True, "")
    finished = cli("evaluate-draft", tiny_bundle, "--prompts", prompts, "--json", prompts)
    assert (finished.exit_code, "which is read" in finished.err) == (2, True)


def test_passes_are_timed_within_the_context(self_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    """The prompt fits, and nine rows behind it would not."""
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"prompt": "x" * 234, "category": "a"}))
    limits = ("--new-tokens", 2, "--pass-repeats", 1, "--threads", 1)
    finished = cli("evaluate-draft", self_bundle, "--prompts", file, *limits)
    assert finished.exit_code == 0, finished.err
