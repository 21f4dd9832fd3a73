"""``pilotfish verify`` passes what is right, and finds each fault it is there to find."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pilotfish import Engine
from pilotfish.runtime import verify_sources
from pilotfish.runtime.options import GenerateKeywords
from pilotfish.runtime.verify import PROMPTS, VerifyOptions, self_draft_bundle, verify
from pilotfish.runtime.verify_checks import (
    Amount,
    _acceptance_check,
    distribution_check,
    greedy_checks,
    row_checks,
    sampled_equality_check,
    self_draft_checks,
    shared_pass_checks,
)
from pilotfish.runtime.verify_oracle import SAMPLINGS, Sampling
from pilotfish.runtime.verify_rollback import SCENARIOS, rollback_checks
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, PLAIN, Source, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from command_line import CommandLine

    from pilotfish.bindings import RequestOptions

AMOUNT = Amount(new_tokens=24, sampled_tokens=150)
CHAIN = Source("chain of 4", GenerateKeywords(num_draft_tokens=4))


@pytest.fixture(scope="module")
def pair(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS, num_sequences=2) as engine:
        yield engine


def prompts(engine: Engine) -> list[list[int]]:
    return [engine.encode(prompt) for prompt in PROMPTS]


def test_the_command_passes_a_right_bundle(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    """Every source, every way to sample, every scenario, and the target as its own draft."""
    file = tmp_path / "verdict.json"
    finished = cli("verify", tiny_bundle, "--new-tokens", 24, "--sampled-tokens", 150, "--threads", 1, "--json", file)
    assert finished.exit_code == 0, finished.out
    report = json.loads(file.read_text())
    assert (report["schema"], report["passed"]) == ("pilotfish-verify/1", True)
    assert f"lossless: all {len(report['checks'])} checks passed" in finished.out
    found = {(check["name"], check["source"]) for check in report["checks"]}
    with Engine(tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        sources = sources_of(engine)
    assert len(sources) >= 9
    for source in sources:
        equal = (f"sampled equality: {sampling.name}" for sampling in SAMPLINGS)
        expected = ["greedy equality", "shared passes", *equal]
        assert {(name, source.name) for name in expected} <= found
        assert {(f"rollback, {name}", f"{source.name}, f16/f16 cache") for name in SCENARIOS} <= found
        assert (("self-draft", source.name) in found) is source.drafts_by_model
    assert {(f"distribution: {sampling.name}", "plain") for sampling in SAMPLINGS} <= found


def test_a_bundle_without_a_draft_says_what_was_not_verified(plain_bundle: Path) -> None:
    report = verify(plain_bundle, VerifyOptions(amount=AMOUNT, threads=1), lambda _: None)
    assert report.passed
    assert "no draft" in report.notes[0]
    assert any(check.name == "self-draft" for check in report.checks)


def test_rows_whose_bits_depend_on_their_pass_are_found(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In passes that begin with the sequence, and in those that begin behind a whole pass of a prompt."""
    with Engine(tiny_bundle, threads=1, prefill_chunk=96, calibration="off") as engine:
        (right,) = row_checks(engine, prompts(engine))
        assert (right.passed, right.detail) == (True, "160 rows")
        logits = engine.logits
        for wrong_length, words in ((3, "3 rows from row 0"), (96 + 17, "17 rows from row 96")):
            wrong = partial(lambda length, ids: logits(ids) + (1e-6 if len(ids) == length else 0), wrong_length)
            monkeypatch.setattr(engine, "logits", wrong)
            (found,) = row_checks(engine, prompts(engine))
            assert (found.name, found.passed) == ("rows alone", False)
            assert found.detail == f"passes of {words} differ"


def test_a_source_that_changes_the_output_fails_the_command(
    tiny_bundle: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling instead of greedy decoding stands for any wrong token."""
    wrong = Source("wrong", GenerateKeywords(num_draft_tokens=2, temperature=1.0, seed=1), drafts_by_model=False)
    monkeypatch.setattr(verify_sources, "_SOURCES", (wrong,))
    finished = cli("verify", tiny_bundle, "--new-tokens", 16, "--sampled-tokens", 100, "--threads", 1)
    assert finished.exit_code == 3
    assert "FAIL" in finished.out
    assert "NOT lossless" in finished.out
    assert "logits differ by" in finished.out


def test_lossy_acceptance_is_found_by_its_distribution(toy_bundle: Path) -> None:
    lossy = Source("typical", GenerateKeywords(num_draft_tokens=4, typical_acceptance=(0.09, 0.3)))
    with Engine(toy_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        amount = Amount(new_tokens=60, sampled_tokens=3000)
        given = [[1, 5, 3], [2], [7, 7, 1, 4]]
        checks = [
            distribution_check(engine, given, source, SAMPLINGS[0], amount, num_checks=40)
            for source in (Source("plain", PLAIN), CHAIN, lossy)
        ]
    assert [check.passed for check in checks] == [True, True, False], checks


def test_a_text_that_is_not_plain_decodings_is_found(tiny_bundle: Path) -> None:
    """Rejection sampling follows the same distribution, but seed by seed it has another text."""
    passed = {}
    for acceptance in ("equal", "rejection"):
        with Engine(tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS, acceptance=acceptance) as engine:
            given = prompts(engine)
            options = SAMPLINGS[0].options | GenerateKeywords(max_new_tokens=AMOUNT.new_tokens, reuse_prefix=False)
            plain = [(prompt, engine.generate(prompt, **(PLAIN | options), seed=at)) for at, prompt in enumerate(given)]
            check = sampled_equality_check(engine, CHAIN, SAMPLINGS[0], plain, AMOUNT)
            passed[acceptance] = check.passed
            assert check.passed or "logits differ by" in check.detail
    assert passed == {"equal": True, "rejection": False}


def test_tokens_that_depend_on_the_company_are_found(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_batch = pair.generate_batch

    def wrong(prompts: list[list[int]], **options: object) -> object:
        return generate_batch([*prompts[1:], prompts[0]], **options)  # type: ignore[arg-type]

    (right,) = shared_pass_checks(pair, prompts(pair), CHAIN, AMOUNT)
    monkeypatch.setattr(pair, "generate_batch", wrong)
    (check,) = shared_pass_checks(pair, prompts(pair), CHAIN, AMOUNT)
    assert (right.passed, check.passed, check.detail) == (True, False, "0 of 6 prompts")


def test_options_that_are_not_kept_are_found(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """top-k is dropped on the way to the library."""
    from pilotfish.runtime import token_stream

    request_open = token_stream.calls.request_open

    def forgetful(engine: object, ids: object, options: RequestOptions) -> object:
        forgotten = dataclasses.replace(options, numbers={**options.numbers, "top_k": 0})
        return request_open(engine, ids, forgotten)  # type: ignore[arg-type]

    monkeypatch.setattr(token_stream.calls, "request_open", forgetful)
    few = Sampling("top-k", GenerateKeywords(temperature=1.4, top_k=3))
    check = distribution_check(pair, prompts(pair), CHAIN, few, AMOUNT, num_checks=1)
    assert not check.passed
    assert "rule out" in check.detail


def test_a_cache_that_is_not_rolled_back_is_found(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation goes on from another text's caches: a token of the prompt is changed behind the comparison."""
    generate = pair.generate

    def wrong(ids: list[int], **options: object) -> object:
        if options.get("reuse_prefix", True) and options.get("max_new_tokens") == 16:
            ids = [*ids[:-2], (ids[-2] + 1) % 256, ids[-1]]
        return generate(ids, **options)  # type: ignore[arg-type]

    assert all(check.passed for check in rollback_checks(pair, prompts(pair), CHAIN, AMOUNT))
    monkeypatch.setattr(pair, "generate", wrong)
    assert not all(check.passed for check in rollback_checks(pair, prompts(pair), CHAIN, AMOUNT))


def test_acceptance_of_everything_on_another_model_is_flagged(self_bundle: Path) -> None:
    with Engine(self_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        free = [[index, 3 * index] for index in range(8)]
        source = Source("chain of 1", GenerateKeywords(num_draft_tokens=1, ignore_eos=True))
        checks = list(greedy_checks(engine, free, source, Amount(new_tokens=33)))
    assert [(check.name, check.passed) for check in checks] == [("greedy equality", True), ("acceptance", False)]
    assert "exactly all" in checks[1].detail


@pytest.mark.parametrize(
    ("accepted", "passed"), [(0, False), (19, False), (20, True), (500, True), (999, True), (1000, False)]
)
def test_acceptance_must_be_neither_nothing_nor_everything(accepted: int, passed: bool) -> None:  # noqa: FBT001
    assert _acceptance_check(CHAIN, accepted, 1000).passed is passed


def test_a_draft_that_is_not_the_target_fails_as_self_draft(pair: Engine) -> None:
    [check] = self_draft_checks(pair, prompts(pair), CHAIN, AMOUNT)
    assert not check.passed
    assert ", 0 corrected" not in check.detail


def test_a_self_draft_that_does_not_pay_need_not_be_drafted_from(pair: Engine) -> None:
    too_short = Amount(new_tokens=2)  # the first token is prefill's, and the last one a round's own
    for source, passed in ((Source("draft", GenerateKeywords(source="draft")), True), (CHAIN, False)):
        [check] = self_draft_checks(pair, prompts(pair), source, too_short)
        assert (check.passed, "0 tokens accepted, 0 corrected" in check.detail) == (passed, True)


def test_the_self_draft_bundle_shares_the_files(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = self_draft_bundle(tiny_bundle, tmp_path)
    assert all(path.samefile(tiny_bundle / path.name) for path in bundle.iterdir() if path.name != "manifest.json")
    models = json.loads((bundle / "manifest.json").read_text())["models"]
    assert models["draft"] == models["target"]


def test_bad_arguments(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    for arguments, words in (
        (["--prompts", empty], "holds no prompt"),
        (["--prompts", tmp_path / "nothing"], "cannot be read"),
        (["--sampled-tokens", 3], "sampled-tokens"),
    ):
        finished = cli("verify", tiny_bundle, *arguments)
        assert finished.exit_code == 2
        assert words in finished.err
