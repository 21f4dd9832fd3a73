"""Generations of one engine on a GPU share rounds, and each has the bits that it has alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from shared_passes import check_the_same_together, counts, parts

from pilotfish import Engine
from pilotfish.bindings import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.gpu

NUM_SEQUENCES = 6
MAX_DRAFT_TOKENS = 15
NEW_TOKENS = 40


@pytest.fixture(scope="module", params=["tiny", "asym", "f16", "asym int8"])
def engine(request: pytest.FixtureRequest, make_bundle: Callable[[str], Path]) -> Iterator[Engine]:
    with Engine(
        make_bundle(request.param),
        device="cuda",
        max_draft_tokens=MAX_DRAFT_TOKENS,
        num_sequences=NUM_SEQUENCES,
        calibration="off",
    ) as engine:
        yield engine
        engine.check()


def prompts(engine: Engine, lengths: tuple[int, ...] = (1, 40, 3, 130, 33, 7, 64, 20, 200)) -> list[list[int]]:
    """More than share a pass."""
    size = engine.manifest.tokenizer.size
    return [[int(id_) for id_ in np.random.default_rng(length).integers(2, size, length)] for length in lengths]


@pytest.mark.parametrize(
    "options",
    [
        {"num_draft_tokens": 0},
        {"num_draft_tokens": 0, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 5},
        {"num_draft_tokens": 1},
        {"num_draft_tokens": 4},
        {"num_draft_tokens": 4, "temperature": 0.9, "min_p": 0.01, "seed": 2},
        {"source": "auto"},
    ],
)
def test_each_has_the_bits_that_it_has_alone(engine: Engine, options: dict[str, Any]) -> None:
    check_the_same_together(engine, prompts(engine), max_new_tokens=NEW_TOKENS, ignore_eos=True, **options)


def test_chains_are_as_long_as_a_round_has_rows(engine: Engine) -> None:
    """Six sequences have 64 rows: 9 drafted tokens each, as long as all of them have so many left.

    Numbers of rounds are no measure: where one has ended the others' chains are longer, and near the end of an output a
    chain has the longest length that is recorded, 7 where 9 would do, unless just so many were asked for.
    """
    asked = prompts(engine)[:NUM_SEQUENCES]
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "reuse_prefix": False}
    alone = [engine.generate(ids, num_draft_tokens=15, **options) for ids in asked]
    together = engine.generate_batch(asked, num_draft_tokens=15, **options)
    assert [parts(result) for result in together] == [parts(result) for result in alone]
    assert sum(counts(result)[1] for result in together) < sum(counts(result)[1] for result in alone)
    streams = [engine.stream(ids, num_draft_tokens=15, **options) for ids in asked]
    try:
        while any(stream.stats.num_new_tokens == 0 for stream in streams):
            assert engine.step_together(streams) == [None] * NUM_SEQUENCES
        for _ in range(3):
            before = [stream.stats.num_drafted for stream in streams]
            engine.step_together(streams)
            drafted = [stream.stats.num_drafted - start for stream, start in zip(streams, before, strict=True)]
            assert drafted == [9] * NUM_SEQUENCES
    finally:
        for stream in streams:
            stream.close()


def test_the_last_rounds_of_different_outputs(engine: Engine) -> None:
    """What a round has for all goes beyond the end of some, and of the context of one."""
    asked = prompts(engine, (engine.info.max_context - 30, 40, 3, 130, 33, 7))
    common: dict[str, Any] = {"ignore_eos": True, "num_draft_tokens": 5, "reuse_prefix": False}
    numbers = [60, 7, 11, 6, 9, 8]
    alone = [engine.generate(ids, max_new_tokens=n, **common) for ids, n in zip(asked, numbers, strict=True)]
    with ThreadPoolExecutor(len(asked)) as threads:
        running = [
            threads.submit(engine.generate, ids, max_new_tokens=n, **common)
            for ids, n in zip(asked, numbers, strict=True)
        ]
        together = [future.result() for future in running]
    assert [parts(result) for result in together] == [parts(result) for result in alone]
    engine.check()


@pytest.mark.parametrize(
    "options",
    [
        {"tree": "dynamic", "tree_nodes": 12, "tree_depth": 4},
        {"source": "lookup", "num_draft_tokens": 6},
        {"source": "lookup+draft", "num_draft_tokens": 6},
        {"num_draft_tokens": 3, "logprobs": 2},
        {"num_draft_tokens": 0, "repetition_penalty": 1.2},
        {"num_draft_tokens": 3, "temperature": 0.8, "typical_p": 0.9, "seed": 8},
    ],
)
def test_whatever_is_drafted_leaves_each_its_bits(engine: Engine, options: dict[str, Any]) -> None:
    check_the_same_together(engine, prompts(engine), max_new_tokens=20, ignore_eos=True, **options)


def times_of_steps(engine: Engine, asked: list[tuple[list[int], dict[str, Any]]], num_steps: int) -> list[list[float]]:
    """What each of some generations counts for the verification, step by step, once all have their prompt behind them.

    Those of one round have the same time, by the clock of whoever chooses.
    """
    streams = [engine.stream(ids, ignore_eos=True, **options) for ids, options in asked]
    try:
        while any(stream.stats.num_rounds == 0 for stream in streams):
            assert engine.step_together(streams) == [None] * len(streams)
        times = []
        for _ in range(num_steps):
            before = [stream.stats.verify_seconds for stream in streams]
            other = [stream.stats.other_seconds for stream in streams]
            assert engine.step_together(streams) == [None] * len(streams)
            times.append([stream.stats.verify_seconds - start for stream, start in zip(streams, before, strict=True)])
            assert all(stream.stats.other_seconds > start for stream, start in zip(streams, other, strict=True))
        return times
    finally:
        for stream in streams:
            stream.close()


@pytest.mark.parametrize(
    "options",
    [
        {"num_draft_tokens": 0},
        {"num_draft_tokens": 3},
        {"num_draft_tokens": 3, "temperature": 0.8},
        {"tree": "dynamic", "tree_nodes": 7, "tree_depth": 3},
        {"tree": "dynamic", "tree_nodes": 9, "tree_depth": 2, "temperature": 0.8},
        {"source": "lookup", "num_draft_tokens": 6},
        {"num_draft_tokens": 3, "logprobs": 2},
        {"num_draft_tokens": 0, "repetition_penalty": 1.2},
        {"tree": "dynamic", "tree_nodes": 6, "tree_depth": 2, "logprobs": 1},
    ],
    ids=str,
)
def test_rounds_are_shared(engine: Engine, options: dict[str, Any]) -> None:
    asked = [(ids, options | {"max_new_tokens": 90}) for ids in prompts(engine, (20,) * NUM_SEQUENCES)]
    for times in times_of_steps(engine, asked, 6):
        assert times[0] > 0
        assert times == pytest.approx([times[0]] * NUM_SEQUENCES, rel=1e-6)


def repeating(engine: Engine, length: int) -> list[int]:
    """A prompt in which something is found."""
    return (prompts(engine, (5,))[0] * length)[:length]


MIXED: list[dict[str, Any]] = [
    {"num_draft_tokens": 0},
    {"source": "lookup", "num_draft_tokens": 8},
    {"source": "lookup", "num_draft_tokens": 5, "temperature": 0.7, "seed": 3},
    {"num_draft_tokens": 2, "logprobs": 1},
    {"tree": "dynamic", "tree_nodes": 5, "tree_depth": 2, "logprobs": 2},
    {"num_draft_tokens": 0, "repetition_penalty": 1.1},
]


def test_one_pass_verifies_whatever_was_drafted(engine: Engine) -> None:
    """Chains of different lengths, trees and nothing, chosen on the device and on the host."""
    asked = [(repeating(engine, 30 + 7 * i), {"max_new_tokens": 120} | own) for i, own in enumerate(MIXED)]
    for times in times_of_steps(engine, asked, 4):
        assert times == pytest.approx([times[0]] * NUM_SEQUENCES, rel=1e-6)
    common: dict[str, Any] = {"ignore_eos": True, "reuse_prefix": False}
    alone = [engine.generate(ids, **common, **own) for ids, own in asked]
    streams = [engine.stream(ids, **common, **own) for ids, own in asked]
    try:
        running = set(range(len(streams)))
        while running:
            order = sorted(running)
            steps = engine.step_together([streams[i] for i in order])
            assert steps == [None] * len(order)
            running = {i for i in order if streams[i].finish_reason is None}
        together = [stream.result() for stream in streams]
    finally:
        for stream in streams:
            stream.close()
    assert [parts(result) for result in together] == [parts(result) for result in alone]
    assert [counts(result) for result in together] == [counts(result) for result in alone]
    for result, own in zip(together, MIXED, strict=True):
        chosen_there = "logprobs" not in own and "repetition_penalty" not in own
        assert result.stats.num_device_rounds == (result.stats.num_rounds if chosen_there else 0)
    engine.check()


def test_more_rows_than_a_pass_has(engine: Engine) -> None:
    """Six chains of 15 are 96 rows: two passes, and the bits of one alone."""
    asked = [repeating(engine, 40 + 3 * i) for i in range(NUM_SEQUENCES)]
    options: dict[str, Any] = {"source": "lookup", "num_draft_tokens": 15}
    check_the_same_together(engine, asked, max_new_tokens=60, ignore_eos=True, **options)
    trees: dict[str, Any] = {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 4}
    check_the_same_together(engine, asked, max_new_tokens=40, ignore_eos=True, **trees)


def test_the_draft_reads_the_prompt_beside_the_target(engine: Engine) -> None:
    """Where it is sure to draft; then its first round has no more to read than the others."""
    ids = prompts(engine, (70,))[0]
    with engine.stream(ids, num_draft_tokens=3, max_new_tokens=12, reuse_prefix=False) as stream:
        next(stream)
        assert stream.stats.num_prefilled_draft == stream.stats.num_prefilled_target == len(ids)
    with engine.stream(ids, source="plain", max_new_tokens=12, reuse_prefix=False) as stream:
        next(stream)
        assert stream.stats.num_prefilled_draft == 0
    with engine.stream(ids, num_draft_tokens=3, max_new_tokens=1, reuse_prefix=False) as stream:
        next(stream)
        assert stream.stats.num_prefilled_draft == 0
    # What the target knows already the draft still reads; and what both know neither does.
    first = engine.generate(ids, source="plain", max_new_tokens=2, ignore_eos=True)
    again = engine.generate(ids, num_draft_tokens=3, max_new_tokens=20, ignore_eos=True)
    once_more = engine.generate(ids, num_draft_tokens=3, max_new_tokens=20, ignore_eos=True)
    assert first.token_ids == again.token_ids[:2] == once_more.token_ids[:2]
    assert again.token_ids == once_more.token_ids
    assert again.stats.num_prefilled_draft == len(ids)
    assert once_more.stats.num_prefilled_draft < len(ids)
    assert once_more.stats.num_accepted == again.stats.num_accepted


def test_threads_with_options_of_their_own(engine: Engine) -> None:
    """Greedy beside sampled, drafted beside plain, the device's choice beside the host's."""
    options: list[dict[str, Any]] = [
        {"num_draft_tokens": 0},
        {"num_draft_tokens": 0, "temperature": 0.7, "seed": 3},
        {"num_draft_tokens": 4},
        {"num_draft_tokens": 4, "temperature": 1.0, "top_k": 20, "seed": 4},
        {"num_draft_tokens": 2, "logprobs": 1},
        {"tree": "dynamic", "tree_nodes": 7, "tree_depth": 3},
    ]
    common: dict[str, Any] = {"max_new_tokens": 60, "ignore_eos": True, "reuse_prefix": False}
    asked = list(zip(prompts(engine), options, strict=False))
    alone = [engine.generate(ids, **common, **own) for ids, own in asked]
    with ThreadPoolExecutor(len(asked)) as threads:
        running = [threads.submit(engine.generate, ids, **common, **own) for ids, own in asked]
        together = [future.result() for future in running]
    assert [parts(result) for result in together] == [parts(result) for result in alone]
    engine.check()


def test_the_plan_covers_shared_rounds(tiny: Path) -> None:
    free_bytes = calls.cuda_info(0, measure=False).free_bytes
    with Engine(tiny, device="cuda", max_draft_tokens=MAX_DRAFT_TOKENS, num_sequences=16) as engine:
        for num_draft_tokens in (0, 1, 2, 3):
            engine.generate_batch(
                prompts(engine) * 2, max_new_tokens=30, ignore_eos=True, num_draft_tokens=num_draft_tokens
            )
        used_bytes = free_bytes - calls.cuda_info(0, measure=False).free_bytes
        assert used_bytes <= engine.info.total_bytes
