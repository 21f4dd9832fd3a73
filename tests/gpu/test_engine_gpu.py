"""Engine(device="cuda") is what it is on the CPU: every source, shape and option, with the same promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish import Engine
from pilotfish.bindings import Model
from pilotfish.runtime.verify import VerifyOptions, verify
from pilotfish.runtime.verify_checks import Amount
from pilotfish.runtime.verify_sources import PLAIN, sources_of

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.runtime.results import Event

pytestmark = pytest.mark.gpu

MAX_TREE = 15  # tokens of the largest source of verify
LENGTHS = (1, 31, 64, 200)  # of prompts: one row, around a block's border, more than a recorded pass has
# Relative norm of a row of logits: the CPU rounds activations to 8 bits, the GPU to f16.
LOGIT_TOLERANCE = 0.07


def prompt(engine: Engine, length: int) -> list[int]:
    size = engine.manifest.tokenizer.size
    return [int(value) for value in np.random.default_rng(length).integers(2, size, length)]


@pytest.mark.parametrize("length", LENGTHS)
def test_greedy_output_is_plain_decodings_with_every_source(any_engine: Engine, length: int) -> None:
    ids = prompt(any_engine, length)
    plain = any_engine.generate(ids, max_new_tokens=40, ignore_eos=True, **PLAIN)
    assert len(plain.token_ids) == 40
    for source in sources_of(any_engine):
        result = any_engine.generate(ids, max_new_tokens=40, ignore_eos=True, **source.options)
        assert result.token_ids == plain.token_ids, source.name
    any_engine.check()


def test_drafts_are_accepted_and_counted(tiny_engine: Engine) -> None:
    ids = prompt(tiny_engine, 40)
    result = tiny_engine.generate(ids, max_new_tokens=60, num_draft_tokens=4, ignore_eos=True)
    stats = result.stats
    assert stats.num_new_tokens == 60
    assert 0 < stats.num_accepted < stats.num_drafted
    assert stats.prefill_seconds > 0
    assert stats.tokens_per_second > 0


@pytest.mark.parametrize(
    "options",
    [
        {"num_draft_tokens": 0},
        {"num_draft_tokens": 3},
        {"num_draft_tokens": 3, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
        {"tree": "dynamic", "tree_nodes": 4, "tree_depth": 2},
        {"tree": "dynamic", "tree_nodes": 12, "tree_depth": 4, "temperature": 0.8},
        {"source": "lookup", "num_draft_tokens": 6, "temperature": 0.8},
        {"source": "lookup+draft", "num_draft_tokens": 6},
    ],
)
def test_the_device_chooses_the_tokens(tiny_engine: Engine, options: dict[str, Any]) -> None:
    stats = tiny_engine.generate(prompt(tiny_engine, 20) * 2, max_new_tokens=20, ignore_eos=True, **options).stats
    assert stats.num_device_rounds == stats.num_rounds > 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7, "top_k": 12, "top_p": 0.95, "seed": 5}])
def test_every_draft_leaves_plain_decodings_text(tiny_engine: Engine, sampling: dict[str, Any]) -> None:
    ids = prompt(tiny_engine, 30) * 3
    options = {"max_new_tokens": 60, "ignore_eos": True, **sampling}
    plain = tiny_engine.generate(ids, **PLAIN, **options)
    for drafting in (
        {"source": "lookup", "num_draft_tokens": 9},
        {"source": "auto"},
        {"num_draft_tokens": 1},
        {"num_draft_tokens": 4},
        {"num_draft_tokens": 11},
        {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
        {"tree": "dynamic", "tree_nodes": 13, "tree_depth": 5},
        {"tree": "dynamic", "tree_nodes": 3, "tree_depth": 1},
        {"tree": "dynamic", "tree_nodes": 12, "tree_depth": 1},
    ):
        drafted = tiny_engine.generate(ids, **drafting, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.stats.num_device_rounds == drafted.stats.num_rounds


@pytest.mark.parametrize(
    "options",
    [
        {"num_draft_tokens": 3, "repetition_penalty": 1.1},
        {"num_draft_tokens": 3, "logprobs": 2},
        {"num_draft_tokens": 3, "temperature": 0.8, "typical_p": 0.9},
    ],
)
def test_options_that_need_the_logits_keep_rounds_on_the_host(tiny_engine: Engine, options: dict[str, Any]) -> None:
    stats = tiny_engine.generate(prompt(tiny_engine, 20), max_new_tokens=20, ignore_eos=True, **options).stats
    assert stats.num_device_rounds == 0 < stats.num_rounds


def test_a_seed_repeats_its_tokens(tiny_engine: Engine) -> None:
    ids = prompt(tiny_engine, 20)
    for options in (
        {"num_draft_tokens": 4},
        {"tree": "dynamic", "tree_nodes": 10, "tree_depth": 3},
        {"num_draft_tokens": 0},
    ):
        first, second = (
            tiny_engine.generate(ids, max_new_tokens=40, temperature=0.9, top_k=50, seed=3, ignore_eos=True, **options)
            for _ in range(2)
        )
        assert first.token_ids == second.token_ids


def test_a_prefix_is_not_computed_again(tiny_engine: Engine) -> None:
    ids = prompt(tiny_engine, 150)
    first = tiny_engine.generate(ids, max_new_tokens=20, num_draft_tokens=4, ignore_eos=True)
    longer = [*ids, *first.token_ids, 5, 6, 7]
    again = tiny_engine.generate(longer, max_new_tokens=20, num_draft_tokens=4, ignore_eos=True)
    fresh = tiny_engine.generate(longer, max_new_tokens=20, num_draft_tokens=4, ignore_eos=True, reuse_prefix=False)
    assert again.token_ids == fresh.token_ids
    assert again.stats.num_prefilled_target < 50
    assert fresh.stats.num_prefilled_target == len(longer)
    tiny_engine.check()


def test_a_prompt_has_the_same_bits_at_once_and_in_pieces(any_engine: Engine) -> None:
    """Other kernels compute a prompt's 190 rows than the 126 behind a reused prefix of few rows."""
    ids = prompt(any_engine, 190)
    options: dict[str, Any] = {"max_new_tokens": 8, "logprobs": 2, "num_draft_tokens": 0, "ignore_eos": True}
    any_engine.generate(ids[:64], **options)
    with any_engine.stream(ids, **options) as stream:
        pieces = list(stream)
        assert stream.stats.num_prefilled_target < len(ids)
    with any_engine.stream(ids, reuse_prefix=False, **options) as stream:
        whole = list(stream)
        assert stream.stats.num_prefilled_target == len(ids)
    assert [event.token_id for event in pieces] == [event.token_id for event in whole]
    assert [event.logprob for event in pieces] == [event.logprob for event in whole]
    assert [event.top_logprobs for event in pieces] == [event.top_logprobs for event in whole]


def test_a_prompt_has_the_same_bits_in_passes_of_any_width(tiny: Path, tiny_engine: Engine) -> None:
    assert tiny_engine.info.prefill_chunk == 512
    ids = prompt(tiny_engine, 600)
    options: dict[str, Any] = {"max_new_tokens": 4, "num_draft_tokens": 2, "ignore_eos": True, "reuse_prefix": False}
    expected = [event.logprob for event in tiny_engine.stream(ids, **options)]
    for chunk in (37, 64, 1000):
        with Engine(tiny, device="cuda", prefill_chunk=chunk, calibration="off") as engine:
            assert [event.logprob for event in engine.stream(ids, **options)] == expected


def test_logprobs_are_of_the_targets_logits(tiny_engine: Engine) -> None:
    ids = prompt(tiny_engine, 30)
    found = {}
    for num_draft_tokens in (0, 4):
        with tiny_engine.stream(
            ids, max_new_tokens=20, logprobs=3, num_draft_tokens=num_draft_tokens, ignore_eos=True
        ) as stream:
            found[num_draft_tokens] = list(stream)
    plain, drafted = found[0], found[4]
    assert [event.token_id for event in plain] == [event.token_id for event in drafted]
    assert [event.logprob for event in plain] == [event.logprob for event in drafted]
    assert [event.top_logprobs for event in plain] == [event.top_logprobs for event in drafted]
    tokens = [event.token_id for event in plain]
    logits = tiny_engine.logits(ids + tokens)[len(ids) - 1 : -1].astype(np.float64)
    expected = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
    expected -= logits.max(1, keepdims=True)
    np.testing.assert_allclose(
        [event.logprob for event in plain], expected[np.arange(len(tokens)), tokens], rtol=0, atol=1e-4
    )


def test_logits_are_the_cpus(tiny: Path, tiny_engine: Engine) -> None:
    ids = prompt(tiny_engine, 100)
    with Engine(tiny, threads=2) as on_cpu:
        for model in (Model.TARGET, Model.DRAFT):
            expected, found = on_cpu.logits(ids, model), tiny_engine.logits(ids, model)
            error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
            assert error.max() < LOGIT_TOLERANCE


def test_other_threads_may_step(tiny_engine: Engine) -> None:
    ids = prompt(tiny_engine, 50)
    expected = tiny_engine.generate(ids, max_new_tokens=30, num_draft_tokens=4, ignore_eos=True).token_ids

    async def collect() -> list[int]:
        stream = tiny_engine.astream(ids, max_new_tokens=30, num_draft_tokens=4, ignore_eos=True)
        return [event.token_id async for event in stream]

    async def both() -> list[list[int]]:
        return list(await asyncio.gather(collect(), collect()))

    assert asyncio.run(both()) == [list(expected)] * 2


def test_a_stream_that_is_dropped_frees_its_blocks(tiny_engine: Engine) -> None:
    free = tiny_engine.info.num_free_blocks + tiny_engine.info.num_retained_blocks
    with tiny_engine.stream(prompt(tiny_engine, 70), max_new_tokens=100, ignore_eos=True, reuse_prefix=False) as stream:
        first: Event = next(iter(stream))
        assert first.token_id >= 0
    tiny_engine.check()
    assert tiny_engine.info.num_free_blocks + tiny_engine.info.num_retained_blocks == free


def test_verify_finds_the_bundle_lossless(tiny: Path) -> None:
    words = " ".join(f"w{number}" for number in range(3, 40))
    options = VerifyOptions(
        prompts=(words, "w7 w8 w9", "w11"), amount=Amount(new_tokens=16, sampled_tokens=100), device="cuda"
    )
    report = verify(tiny, options, lambda _: None)
    assert [check for check in report.checks if not check.passed] == []


def test_a_real_pair(real_bundle: Path) -> None:
    messages = [{"role": "user", "content": "Write a Python function that adds two numbers."}]
    with Engine(real_bundle, device="cuda", max_draft_tokens=MAX_TREE, max_context=1024) as engine:
        plain = engine.chat(messages, max_new_tokens=96, **PLAIN)
        assert len(plain.text.split()) > 20
        for source in sources_of(engine):
            assert engine.chat(messages, max_new_tokens=96, **source.options).token_ids == plain.token_ids, source.name
        chain = engine.chat(messages, max_new_tokens=96, num_draft_tokens=4)
        assert chain.stats.acceptance_rate > 0.2
