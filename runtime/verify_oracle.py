"""What the options of a generation make of a row of logits: a second implementation, in NumPy, to verify the first by.

With the ways to sample that it judges: a new option joins both. Slow and plain, in double precision. Processors first,
in the order that GenerateOptions explains, then the warpers temperature, top-k, top-p, min-p and typical-p, each on
what the one before left.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .options import GenerateKeywords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .options import GenerateOptions

    Scores = NDArray[np.float64]

# Summing in single precision may put a token just inside a filter that double precision puts just outside.
MASS_SLACK = 1e-4
MIN_P_SLACK = 1e-5


@dataclass(frozen=True, slots=True)
class Sampling:
    """A way to sample."""

    name: str
    options: GenerateKeywords = field(default_factory=GenerateKeywords)


SAMPLINGS = (
    Sampling("temperature 1", GenerateKeywords(temperature=1.0)),
    Sampling("cool, top-k", GenerateKeywords(temperature=0.6, top_k=20)),
    Sampling("warm, top-p", GenerateKeywords(temperature=1.4, top_p=0.8)),
    Sampling("min-p", GenerateKeywords(temperature=1.0, min_p=0.1)),
    Sampling("typical-p", GenerateKeywords(temperature=1.0, typical_p=0.8)),
    Sampling("penalties", GenerateKeywords(temperature=1.0, repetition_penalty=1.2, frequency_penalty=0.5)),
    Sampling("penalties in a window", GenerateKeywords(temperature=0.9, presence_penalty=1.0, penalty_window=8)),
    Sampling("no trigram twice", GenerateKeywords(temperature=0.7, no_repeat_ngram_size=3)),
    Sampling(
        "all of them",
        GenerateKeywords(
            temperature=0.9,
            top_k=50,
            top_p=0.95,
            min_p=0.02,
            typical_p=0.95,
            repetition_penalty=1.1,
            presence_penalty=0.2,
            frequency_penalty=0.2,
            penalty_window=32,
            no_repeat_ngram_size=4,
            logit_bias={0: -2.0, 1: 2.0},
            min_new_tokens=8,
        ),
    ),
)


def distribution(
    logits: NDArray[np.float32], options: GenerateOptions, ids: Sequence[int], num_prompt: int, eos_ids: Sequence[int]
) -> Scores:
    """Probabilities of all ids, [num_ids]; 0 for those that the options rule out.

    Args:
        logits: the target's, after ``ids``.
        options: those of the generation; its temperature is not 0.
        ids: the prompt's tokens, ``num_prompt`` of them, and those generated.
        num_prompt: where the generated ones begin.
        eos_ids: the bundle's end-of-text ids.
    """
    scores = processed(logits, options, ids, num_prompt, eos_ids)
    return _warped(scores / options.temperature, options)


def processed(
    logits: NDArray[np.float32], options: GenerateOptions, ids: Sequence[int], num_prompt: int, eos_ids: Sequence[int]
) -> Scores:
    """The scores after the processors, -inf for what they ban; arguments are distribution()'s."""
    scores = logits.astype(np.float64)
    for token_id, bias in options.logit_bias.items():
        scores[token_id] += bias
    first = max(0, len(ids) - options.penalty_window) if options.penalty_window else 0
    for token_id in set(ids[first:]):
        penalty = options.repetition_penalty
        scores[token_id] *= penalty if scores[token_id] < 0 else 1 / penalty
    for token_id, count in Counter(ids[max(first, num_prompt) :]).items():
        scores[token_id] -= options.presence_penalty + count * options.frequency_penalty
    scores[_ends_of_repeats(ids, options.no_repeat_ngram_size)] = -np.inf
    if len(ids) - num_prompt < options.min_new_tokens:
        scores[[*(() if options.ignore_eos else eos_ids), *options.stop_ids]] = -np.inf
    return scores


def _ends_of_repeats(ids: Sequence[int], size: int) -> list[int]:
    """What would complete an n-gram a second time."""
    if not 0 < size <= len(ids):
        return []
    tail = list(ids[len(ids) - size + 1 :])
    starts = range(len(ids) - size + 1)
    return [ids[start + size - 1] for start in starts if list(ids[start : start + size - 1]) == tail]


def _warped(scores: Scores, options: GenerateOptions) -> Scores:
    shares = np.exp(scores - scores.max())
    kept = np.flatnonzero(shares)
    if 0 < options.top_k < len(kept):
        kept = kept[np.argpartition(-shares[kept], options.top_k - 1)[: options.top_k]]
    if options.top_p < 1:
        kept = kept[np.argsort(-shares[kept], kind="stable")]
        kept = _until(kept, shares, options.top_p)
    kept = kept[shares[kept] >= options.min_p * (1 - MIN_P_SLACK) * shares.max()]
    if options.typical_p < 1:
        surprise = -np.log(shares[kept] / shares[kept].sum())
        entropy = float((np.exp(-surprise) * surprise).sum())
        kept = _until(kept[np.argsort(np.abs(surprise - entropy), kind="stable")], shares, options.typical_p)
    result = np.zeros(len(shares))
    result[kept] = shares[kept] / shares[kept].sum()
    return result


def _until(kept: NDArray[np.intp], shares: Scores, mass: float) -> NDArray[np.intp]:
    """The first of them that together reach a share of all."""
    cumulative = np.cumsum(shares[kept]) / shares[kept].sum()
    return kept[: int(np.searchsorted(cumulative, mass + MASS_SLACK)) + 1]
