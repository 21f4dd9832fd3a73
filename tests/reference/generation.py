"""Sampled generation from logits, by shared noise or by rejection: what the engine does with a seed, in plain Python.

Random numbers are Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), indexed by what
they decide: the key is the seed; the counter is (position in the sequence, purpose, which candidate, 0).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .processors import distribution, processed_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pilotfish.bindings import RequestOptions

    Logits = Callable[[list[int]], NDArray[np.float32]]
    """The logits after a sequence."""

DRAFT, ACCEPT, TARGET, NOISE, BLOCK_NOISE = range(5)
_MASK = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    a, b, c, d = counter
    first_key, second_key = key
    for _ in range(10):
        high, low = divmod(0xD2511F53 * a, 1 << 32)
        other_high, other_low = divmod(0xCD9E8D57 * c, 1 << 32)
        a, b, c, d = other_high ^ b ^ first_key, other_low, high ^ d ^ second_key, low
        first_key, second_key = (first_key + 0x9E3779B9) & _MASK, (second_key + 0xBB67AE85) & _MASK
    return a, b, c, d


def uniform(seed: int, position: int, purpose: int) -> float:
    """In [0, 1), with 53 random bits."""
    first, second, _, _ = philox((position, purpose, 0, 0), (seed & _MASK, seed >> 32))
    return ((first << 32 | second) >> 11) * 2.0**-53


def exponential(word: int) -> float:
    return -math.log1p(-(word // 2 | 1) * 2.0**-31)


def noise(seed: int, position: int, token: int) -> float:
    """E of a position and a token, exponentially distributed with mean 1: -ln(E) is its Gumbel noise.

    The least one of 64 ids is drawn, and who has it; the others are so much above it.
    """
    key = (seed & _MASK, seed >> 32)
    block = philox((position, BLOCK_NOISE, token // 64, 0), key)
    least = exponential(block[0]) / 64
    if token % 64 == block[1] % 64:
        return least
    return least + exponential(philox((position, NOISE, token // 4, 0), key)[token % 4])


class NothingLeftError(Exception):
    """The options ban every token."""


class Generation:
    """One request, plain: whatever drafts, the text is this."""

    def __init__(self, options: RequestOptions, prompt: Sequence[int], target: Logits) -> None:
        self._options = options
        self._prompt = list(prompt)
        self._target = target

    def run(self, max_context: int) -> list[int]:
        """The tokens that are generated, one that ends the text included; NothingLeftError after how many."""
        length = min(len(self._prompt) + self._options.max_new_tokens, max_context)
        tokens = list(self._prompt)
        while len(tokens) < length and not (len(tokens) > len(self._prompt) and tokens[-1] in self._options.stop_ids):
            tokens.append(self._choose(tokens))
        return tokens[len(self._prompt) :]

    def _choose(self, tokens: list[int]) -> int:
        """The argmax of ln p + Gumbel noise, of tokens above 2^-24 of the likeliest one; greedy: of the scores."""
        output = tokens[len(self._prompt) :]
        scores = processed_scores(self._options, self._target(tokens).astype(np.float64), self._prompt, output)
        if np.isneginf(scores).all():
            raise NothingLeftError(len(output))
        if self._options.temperature == 0:
            return int(scores.argmax())
        shares = distribution(self._options, scores)
        able = np.flatnonzero(shares >= shares.max() * 2.0**-24)
        return max(able, key=lambda token: math.log(shares[token]) - math.log(self._noise(tokens, int(token))))

    def _noise(self, before: Sequence[int], token: int) -> float:
        return noise(self._options.seed, len(before), token)


class RejectionGeneration:
    """One request with a drafted chain, accepted by rejection."""

    def __init__(self, options: RequestOptions, prompt: Sequence[int], target: Logits, draft: Logits) -> None:
        self._options = options
        self._prompt = list(prompt)
        self._target = target
        self._draft = draft

    def run(self, max_context: int) -> list[int]:
        """The tokens that are generated, one that ends the text included."""
        length = min(len(self._prompt) + self._options.max_new_tokens, max_context)
        tokens = [*self._prompt, self._draw(self._prompt, self._distribution(self._target, self._prompt), TARGET)]
        while len(tokens) < length and tokens[-1] not in self._options.stop_ids:
            for token in self._round(tokens, min(self._options.num_draft_tokens, length - len(tokens) - 1)):
                tokens.append(token)
                if token in self._options.stop_ids:
                    break
        return tokens[len(self._prompt) :]

    def _round(self, tokens: list[int], num_drafted: int) -> list[int]:
        """Leviathan et al., 2023, algorithm 1; a chain ends at a token that ends the text."""
        drafted: list[int] = []
        proposals: list[NDArray[np.float64]] = []
        while len(drafted) < num_drafted and not (drafted and drafted[-1] in self._options.stop_ids):
            proposals.append(self._distribution(self._draft, tokens + drafted))
            drafted.append(self._draw(tokens + drafted, proposals[-1], DRAFT))
        for index, (token, proposal) in enumerate(zip(drafted, proposals, strict=True)):
            before = tokens + drafted[:index]
            wanted = self._distribution(self._target, before)
            if self._uniform(before, ACCEPT) * proposal[token] < wanted[token]:
                continue
            return [*drafted[:index], self._draw(before, np.maximum(wanted - proposal, 0), TARGET)]
        before = tokens + drafted
        return [*drafted, self._draw(before, self._distribution(self._target, before), TARGET)]

    def _distribution(self, model: Logits, tokens: list[int]) -> NDArray[np.float64]:
        output = tokens[len(self._prompt) :]
        return distribution(
            self._options, processed_scores(self._options, model(tokens).astype(np.float64), self._prompt, output)
        )

    def _draw(self, before: Sequence[int], shares: NDArray[np.float64], purpose: int) -> int:
        """By inversion, in the order of the ids."""
        sums = np.cumsum(shares)
        return int(np.searchsorted(sums, self._uniform(before, purpose) * sums[-1], side="right"))

    def _uniform(self, before: Sequence[int], purpose: int) -> float:
        return uniform(self._options.seed, len(before), purpose)
