"""The statistics behind ``pilotfish verify``, and its second implementation of the options."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pilotfish.runtime.options import GenerateOptions
from pilotfish.runtime.verify_oracle import distribution, processed
from pilotfish.runtime.verify_statistics import chi_square_p_value, randomised_rank, uniform_p_value

torch = pytest.importorskip("torch", reason="torch has the reference functions")


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 19, 20])
@pytest.mark.parametrize("statistic", [0.0, 0.3, 4.0, 25.0, 120.0])
def test_chi_square_is_the_incomplete_gamma_function(statistic: float, freedom: int) -> None:
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    expected = float(torch.special.gammaincc(half[0], half[1]))
    assert chi_square_p_value(statistic, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def ranks(drawn_from: np.ndarray, held_against: np.ndarray, num_draws: int, seed: int) -> list[float]:
    generator = np.random.default_rng(seed)
    found = []
    for token_id in generator.choice(len(drawn_from), size=num_draws, p=drawn_from):
        rank = randomised_rank(held_against, held_against, int(token_id), generator.random())
        assert rank is not None
        found.append(rank)
    return found


def test_ranks_are_uniform_only_for_the_right_distribution() -> None:
    generator = np.random.default_rng(1)
    right = generator.dirichlet(np.full(50, 0.3)) + 1e-6
    right /= right.sum()
    wrong = right**0.8
    wrong /= wrong.sum()
    p_values = [uniform_p_value(ranks(right, right, 1000, seed)) for seed in range(40)]
    assert min(p_values) > 1e-4
    assert 0.3 < float(np.median(p_values)) < 0.7
    assert max(uniform_p_value(ranks(wrong, right, 3000, seed)) for seed in range(5)) < 1e-4


def test_a_token_without_probability_has_no_rank() -> None:
    probabilities = np.array([0.5, 0.5, 0.0])
    assert randomised_rank(probabilities, probabilities, 2, 0.5) is None


def test_few_values_say_nothing() -> None:
    assert uniform_p_value([0.0] * 15) == 1.0
    assert uniform_p_value([0.0] * 60) < 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"temperature": 1.3, "top_k": 7},
        {"temperature": 1.0, "top_p": 0.6},
        {"temperature": 1.0, "min_p": 0.2},
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
        {"temperature": 1.0, "typical_p": 0.7},
        {"temperature": 1.0, "repetition_penalty": 1.4},
        {"temperature": 1.0, "no_repeat_ngram_size": 3},
    ],
)
def test_the_oracle_is_transformers(options: dict[str, float]) -> None:
    from transformers import (
        MinPLogitsWarper,
        NoRepeatNGramLogitsProcessor,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
        TypicalLogitsWarper,
    )

    logits = np.random.default_rng(2).normal(size=200).astype(np.float32) * 3
    ids = [5, 6, 7, 100, 5, 6, 8, 101, 5, 6]
    before = torch.tensor([ids])
    scores = torch.tensor(logits)[None]
    if "repetition_penalty" in options:
        scores = RepetitionPenaltyLogitsProcessor(options["repetition_penalty"])(before, scores)
    if "no_repeat_ngram_size" in options:
        scores = NoRepeatNGramLogitsProcessor(int(options["no_repeat_ngram_size"]))(before, scores)
    scores = TemperatureLogitsWarper(options["temperature"])(None, scores)
    if "top_k" in options:
        scores = TopKLogitsWarper(int(options["top_k"]))(None, scores)
    if "top_p" in options:
        scores = TopPLogitsWarper(options["top_p"])(None, scores)
    if "min_p" in options:
        scores = MinPLogitsWarper(options["min_p"])(None, scores)
    if "typical_p" in options:
        scores = TypicalLogitsWarper(options["typical_p"])(None, scores)
    expected = torch.softmax(scores[0].double(), 0).numpy()
    found = distribution(logits, GenerateOptions(**options), ids, 4, [])  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_oracles_other_processors() -> None:
    logits = np.zeros(8, dtype=np.float32)
    options = GenerateOptions(
        temperature=1.0,
        presence_penalty=1.0,
        frequency_penalty=0.5,
        penalty_window=4,
        min_new_tokens=6,
        stop_ids=[7],
        logit_bias={2: 3.0},
    )
    # The window holds 1, 2, 2, 3, of which the prompt's 1 is not penalised.
    found = processed(logits, options, [2, 2, 0, 1, 2, 2, 3], 4, [6])
    np.testing.assert_allclose(found, [0, 0, 3 - 2, -1.5, 0, 0, -np.inf, -np.inf])
    endless = processed(logits, dataclasses.replace(options, ignore_eos=True), [2, 2, 0, 1, 2, 2, 3], 4, [6])
    assert endless[6] == 0
