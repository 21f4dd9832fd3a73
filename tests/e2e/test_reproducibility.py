"""A seed's tokens are those of a second implementation in plain Python, on one thread and on two."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from every_option import EVERY_OPTION
from reference.generation import Generation, RejectionGeneration, philox

from pilotfish import Engine
from pilotfish.bindings import Model
from pilotfish.runtime import GenerateOptions
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, sources_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np

EOS = 257
EVERYTHING: dict[str, Any] = EVERY_OPTION | {
    "logit_bias": {EOS: 5.0, **EVERY_OPTION["logit_bias"]},
    "stop_ids": [EOS, 77],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1.0},
    "top_k": {"temperature": 0.7, "top_k": 20},
    "typical_p": {"temperature": 1.2, "typical_p": 0.8},
    "penalties": {"temperature": 0.9, "repetition_penalty": 1.3, "presence_penalty": 0.5},
    "everything": {"temperature": 0.9, **EVERYTHING},
}


@pytest.fixture(scope="module")
def one_thread(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        yield engine


@pytest.fixture(scope="module")
def rejecting(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS, acceptance="rejection") as engine:
        yield engine


@pytest.fixture(scope="module")
def two_threads(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=2, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        yield engine


def prompts() -> list[list[int]]:
    return [[(13 * index + 5 * at) % 256 for at in range(1 + 7 * index)] for index in range(4)]


def test_philox_gives_the_published_numbers() -> None:
    """Known answers of Random123's kat_vectors."""
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    every = 0xFFFFFFFF
    assert philox((every,) * 4, (every, every)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


Tokens = tuple[int, ...]


def logits_of(engine: Engine, model: Model) -> Callable[[list[int]], np.ndarray]:
    """The logits after a sequence, each computed once."""

    @cache
    def found(tokens: Tokens) -> np.ndarray:
        return engine.logits(tokens, model)[-1]

    return lambda tokens: found(tuple(tokens))


@pytest.mark.parametrize("name", OPTIONS)
def test_samples_are_those_of_the_second_implementation(one_thread: Engine, name: str) -> None:
    """Whatever drafts."""
    target = logits_of(one_thread, Model.TARGET)
    drafted = 0
    for seed, prompt in enumerate(prompts()):
        options = {"stop_ids": [EOS], "max_new_tokens": 24, **OPTIONS[name], "seed": seed + 2**40}
        request = GenerateOptions(**options).to_request(has_draft=True, max_draft_tokens=8)
        expected = Generation(request, prompt, target).run(one_thread.info.max_context)
        for drafting in (
            {"num_draft_tokens": 0},
            {"num_draft_tokens": 3},
            {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
            {},
        ):
            result = one_thread.generate(prompt, **options, **drafting)
            assert list(result.token_ids) == expected, drafting
            drafted += result.stats.num_drafted
    assert drafted > 0


@pytest.mark.parametrize("num_draft_tokens", [1, 3, 8])
@pytest.mark.parametrize("name", OPTIONS)
def test_rejection_is_that_of_the_second_implementation(rejecting: Engine, name: str, num_draft_tokens: int) -> None:
    target, draft = logits_of(rejecting, Model.TARGET), logits_of(rejecting, Model.DRAFT)
    drafted = accepted = 0
    for seed, prompt in enumerate(prompts()):
        options = {"stop_ids": [EOS], "max_new_tokens": 24, **OPTIONS[name]}
        request = GenerateOptions(**options, seed=seed, num_draft_tokens=num_draft_tokens)
        expected = RejectionGeneration(
            request.to_request(has_draft=True, max_draft_tokens=8), prompt, target, draft
        ).run(rejecting.info.max_context)
        result = rejecting.generate(prompt, **options, seed=seed, num_draft_tokens=num_draft_tokens)
        assert list(result.token_ids) == expected
        drafted += result.stats.num_drafted
        accepted += result.stats.num_accepted
    assert drafted > 0 < accepted


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_threads_change_nothing(one_thread: Engine, two_threads: Engine, temperature: float) -> None:
    """Neither does the source of the drafts, with every option on."""
    for seed, prompt in enumerate(prompts()):
        options: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_new_tokens": 40, **EVERYTHING}
        plain = one_thread.generate(prompt, source="plain", **options)
        chains = [{"num_draft_tokens": number} for number in range(9)]
        for source in [*chains, *(source.options for source in sources_of(one_thread))]:
            first, second = (engine.generate(prompt, **(options | source)) for engine in (one_thread, two_threads))
            assert (first.token_ids, first.logprobs) == (second.token_ids, second.logprobs)
            assert (first.token_ids, first.logprobs) == (plain.token_ids, plain.logprobs), source
