"""Whole generations with every combination of options are those of transformers' processors and warpers.

tests/native/option_combinations_test.cpp compares scores and distributions themselves, with definitions in C++.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.generation import Generation, NothingLeftError

from pilotfish import Engine
from pilotfish.bindings import NoTokenLeftError
from pilotfish.runtime.options import GenerateOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np

MOST_NEW_TOKENS = 12
IDS = st.integers(0, 11)
PROCESSORS: dict[str, st.SearchStrategy[Any]] = {
    "repetition_penalty": st.sampled_from([0.7, 1.3, 5.0]),
    "presence_penalty": st.sampled_from([-0.5, 0.8, 2.0]),
    "frequency_penalty": st.sampled_from([-0.3, 0.6, 2.0]),
    "penalty_window": st.integers(1, 12),
    "no_repeat_ngram_size": st.integers(1, 4),
    "min_new_tokens": st.integers(1, 8),
    "stop_ids": st.lists(IDS, min_size=1, max_size=3),
    "logit_bias": st.dictionaries(IDS, st.sampled_from([-float("inf"), -3.0, 0.5, 4.0]), min_size=1),
}
WARPERS: dict[str, st.SearchStrategy[Any]] = {
    "top_k": st.integers(1, 50),
    "top_p": st.floats(0.01, 0.999),
    "min_p": st.floats(0.001, 0.9),
    "typical_p": st.floats(0.01, 0.999),
}
NEEDED: dict[str, dict[str, Any]] = {
    "min_new_tokens": {"stop_ids": [1, 3]},
    "penalty_window": {"repetition_penalty": 2.0},
}
TEMPERATURES = st.sampled_from([0.3, 1.0, 1.7])
EVERY_OPTION = st.fixed_dictionaries({"temperature": st.just(0.0) | TEMPERATURES}, optional=PROCESSORS | WARPERS)
PROMPTS = st.lists(st.integers(0, 8), min_size=1, max_size=20)  # of few ids, so that n-grams repeat
DRAFTING = st.sampled_from(
    [{"num_draft_tokens": 0}, {"num_draft_tokens": 3}, {"tree": "dynamic", "tree_nodes": 6, "tree_depth": 2}, {}]
)
ASKED = st.tuples(PROMPTS, st.integers(0, 2**64 - 1), DRAFTING)
Asked = tuple[list[int], int, dict[str, Any]]
"""A prompt, a seed, and how drafts are made."""
BUNDLES = ("toy_bundle", "tiny_bundle")  # 12 ids in f32, 258 in 4 bits


class Checked:
    """An engine, and the target's logits after each sequence that was asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._logits: Callable[[tuple[int, ...]], np.ndarray] = cache(lambda tokens: engine.logits(tokens)[-1])

    def check(self, asked: Asked, options: dict[str, Any]) -> None:
        """What the engine generates is what the second implementation does, to the error where nothing is left."""
        prompt, seed, drafting = asked
        options = {"max_new_tokens": MOST_NEW_TOKENS, "ignore_eos": True, "seed": seed, **options}
        request = GenerateOptions(**options).to_request(has_draft=True, max_draft_tokens=8)
        generation = Generation(request, prompt, lambda tokens: self._logits(tuple(tokens)))
        try:
            expected = generation.run(self._engine.info.max_context)
        except NothingLeftError as error:
            with pytest.raises(NoTokenLeftError, match=f"follow {error} new tokens: together these ban every id"):
                self._engine.generate(prompt, **options, **drafting)
        else:
            assert list(self._engine.generate(prompt, **options, **drafting).token_ids) == expected


@pytest.fixture(scope="module", params=BUNDLES)
def checked(request: pytest.FixtureRequest) -> Iterator[Checked]:
    bundle: Path = request.getfixturevalue(request.param)
    with Engine(bundle, threads=1) as engine:
        yield Checked(engine)


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), asked=ASKED)
def test_a_processor_alone(checked: Checked, name: str, data: st.DataObject, asked: Asked) -> None:
    temperature = data.draw(st.sampled_from([0.0, 1.0]))
    checked.check(asked, {"temperature": temperature, **NEEDED.get(name, {}), name: data.draw(PROCESSORS[name])})


@pytest.mark.parametrize("name", WARPERS)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), asked=ASKED)
def test_a_warper_alone(checked: Checked, name: str, data: st.DataObject, asked: Asked) -> None:
    checked.check(asked, {"temperature": data.draw(TEMPERATURES), name: data.draw(WARPERS[name])})


@settings(max_examples=200, deadline=None)
@given(options=EVERY_OPTION, asked=ASKED)
def test_all_combinations(checked: Checked, options: dict[str, Any], asked: Asked) -> None:
    checked.check(asked, options)
