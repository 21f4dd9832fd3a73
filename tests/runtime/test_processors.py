"""Each option does to a row of logits what transformers' processors and warpers do, alone and together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.processors import distribution, processed_scores

from pilotfish.bindings import Mask, NoTokenLeftError, RequestOptions, calls
from pilotfish.runtime.options import GenerateOptions

PLAIN: dict[str, Any] = {"max_new_tokens": 1000}
PROCESSORS: dict[str, st.SearchStrategy[Any]] = {
    "repetition_penalty": st.sampled_from([0.7, 1.3, 5.0]),
    "presence_penalty": st.sampled_from([-0.5, 0.8, 2.0]),
    "frequency_penalty": st.sampled_from([-0.3, 0.6, 2.0]),
    "penalty_window": st.integers(1, 12),
    "no_repeat_ngram_size": st.integers(1, 4),
    "min_new_tokens": st.integers(1, 8),
    "stop_ids": st.lists(st.integers(0, 4), min_size=1, max_size=3),
    "logit_bias": st.dictionaries(st.integers(0, 4), st.sampled_from([-float("inf"), -3.0, 0.5, 4.0]), min_size=1),
}
WARPERS: dict[str, st.SearchStrategy[Any]] = {
    "top_k": st.integers(1, 50),
    "top_p": st.floats(0.01, 0.999),
    "min_p": st.floats(0.001, 0.9),
    "typical_p": st.floats(0.01, 0.999),
}
TEMPERATURES = st.sampled_from([0.3, 1.0, 1.7])
EVERY_OPTION = st.fixed_dictionaries({}, optional=PROCESSORS | WARPERS)


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, list[int], list[int]]:
    """Logits, and a prompt and an output of few distinct ids, so that n-grams repeat."""
    size = draw(st.integers(5, 400))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = generator.normal(scale=draw(st.sampled_from([0.5, 3.0])), size=size).astype(np.float32)
    ids = st.lists(st.integers(0, min(size, 9) - 1), max_size=20)
    return logits, draw(ids), draw(ids)


def request(**options: Any) -> RequestOptions:
    return GenerateOptions(**(PLAIN | options)).to_request(has_draft=False, max_draft_tokens=0)


def check(options: RequestOptions, row: tuple[np.ndarray, list[int], list[int]]) -> None:
    logits, prompt, output = row
    tokens = np.array([*prompt, *output], dtype=np.int32)
    scores = processed_scores(options, logits, prompt, output)
    if np.isneginf(scores).all():
        with pytest.raises(NoTokenLeftError, match="ban every id"):
            calls.process_logits(options, logits, tokens, len(prompt))
        return
    found_scores, found = calls.process_logits(options, logits, tokens, len(prompt))
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5, atol=1e-5)
    if options.temperature == 0:
        assert found.argmax() == found_scores.argmax()
        assert found.max() == found.sum() == 1
        return
    # Single precision may put a token that lies on a threshold on its other side.
    candidates = [distribution(options, scores, slack) for slack in (0.0, -1e-5, 1e-5)]
    assert any(np.allclose(found, expected, rtol=1e-4, atol=1e-6) for expected in candidates)


@pytest.mark.parametrize("name", PROCESSORS)
@settings(deadline=None)
@given(data=st.data(), row=rows(), temperature=st.sampled_from([0.0, 1.0]))
def test_a_processor_alone(name: str, data: st.DataObject, row: Any, temperature: float) -> None:
    needed = {"min_new_tokens": {"stop_ids": [1, 3]}, "penalty_window": {"repetition_penalty": 2.0}}.get(name, {})
    check(request(temperature=temperature, **needed, **{name: data.draw(PROCESSORS[name])}), row)


@pytest.mark.parametrize("name", WARPERS)
@settings(deadline=None)
@given(data=st.data(), row=rows(), temperature=TEMPERATURES)
def test_a_warper_alone(name: str, data: st.DataObject, row: Any, temperature: float) -> None:
    check(request(temperature=temperature, **{name: data.draw(WARPERS[name])}), row)


@settings(max_examples=400, deadline=None)
@given(options=EVERY_OPTION, row=rows(), temperature=st.just(0.0) | TEMPERATURES)
def test_all_combinations(options: dict[str, Any], row: Any, temperature: float) -> None:
    check(request(temperature=temperature, **options), row)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_mask_is_applied_before_everything_else(temperature: float) -> None:
    def allow(path: Any, words: np.ndarray) -> None:
        assert list(path) == []
        words[1] = 1 << 3 | 1 << 7

    logits = np.random.default_rng(1).normal(size=100).astype(np.float32)
    options = GenerateOptions(temperature=temperature, logit_bias={35: 2.0, 36: 50.0})
    masked = options.to_request(has_draft=False, max_draft_tokens=0, mask=Mask(allow, 100))
    scores, probs = calls.process_logits(masked, logits, np.empty(0, np.int32), 0)
    assert np.flatnonzero(np.isfinite(scores)).tolist() == [35, 39]
    assert scores[35] == pytest.approx(logits[35] + 2.0)
    assert set(np.flatnonzero(probs)) <= {35, 39}


def test_banning_all_tokens_is_named() -> None:
    banned = request(logit_bias=dict.fromkeys(range(10), -float("inf")))
    with pytest.raises(NoTokenLeftError, match=r"follow 0 new tokens: together these ban every id: logit_bias$"):
        calls.process_logits(banned, np.zeros(10, np.float32), np.array([1], np.int32), 1)
    banned = request(no_repeat_ngram_size=1, min_new_tokens=5, stop_ids=[0])
    with pytest.raises(NoTokenLeftError, match=r"no_repeat_ngram_size, min_new_tokens$"):
        calls.process_logits(banned, np.zeros(3, np.float32), np.array([1, 2], np.int32), 1)
