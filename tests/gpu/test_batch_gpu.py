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
def test_what_takes_turns_has_its_bits_too(engine: Engine, options: dict[str, Any]) -> None:
    check_the_same_together(engine, prompts(engine), max_new_tokens=20, ignore_eos=True, **options)


def test_rounds_are_shared(engine: Engine) -> None:
    """Those of one round have the same times by the GPU's clock."""
    options: dict[str, Any] = {"max_new_tokens": 60, "ignore_eos": True, "num_draft_tokens": 0}
    streams = [engine.stream(ids, **options) for ids in prompts(engine, (20,) * NUM_SEQUENCES)]
    try:
        while any(stream.stats.num_rounds == 0 for stream in streams):
            assert engine.step_together(streams) == [None] * NUM_SEQUENCES
        for _ in range(8):
            before = [stream.stats.verify_seconds for stream in streams]
            engine.step_together(streams)
            took = [stream.stats.verify_seconds - start for stream, start in zip(streams, before, strict=True)]
            assert took == pytest.approx([took[0]] * NUM_SEQUENCES, rel=1e-6)
    finally:
        for stream in streams:
            stream.close()


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
