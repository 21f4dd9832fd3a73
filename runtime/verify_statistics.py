"""Is a sample what a distribution says? Ranks that must be uniform, and the chi-square test of that. NumPy only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_EXPECTED = 10.0  # in a bin, so that the statistic follows its distribution


def randomised_rank(
    probabilities: NDArray[np.float64], preference: NDArray[np.float64], token_id: int, uniform: float
) -> float | None:
    """Where a token falls in its distribution's cumulative sum, spread evenly over its own share: in [0, 1).

    Over tokens that were drawn from their distributions these values are independent and uniform, whatever the
    distributions (the randomised probability integral transform; Rosenblatt 1952, Brockwell 2007).

    Args:
        probabilities: of all ids, [num_ids].
        preference: of all ids; those of the greatest are summed first, of equal ones the lowest id. A good one is great
            where an error would favour the token.
        token_id: the token that was drawn.
        uniform: a number in [0, 1) of a generator that has nothing to do with the draw.

    Returns:
        None if the token has no probability.
    """
    share = float(probabilities[token_id])
    if share == 0:
        return None
    own = preference[token_id]
    first = probabilities[preference > own].sum() + probabilities[:token_id][preference[:token_id] == own].sum()
    before = float(first)
    return min(before + uniform * share, math.nextafter(1, 0))


def uniform_p_value(values: list[float]) -> float:
    """Of Pearson's chi-square over equal bins; 1 if there are too few values for two bins."""
    num_bins = min(20, int(len(values) / LEAST_EXPECTED))
    if num_bins < 2:  # noqa: PLR2004 - one bin has no freedom
        return 1.0
    counts, _ = np.histogram(values, bins=num_bins, range=(0.0, 1.0))
    expected = len(values) / num_bins
    return chi_square_p_value(float(((counts - expected) ** 2).sum() / expected), num_bins - 1)


def chi_square_p_value(statistic: float, freedom: int) -> float:
    """Probability of a chi-square variable of ``freedom`` degrees to reach ``statistic``.

    By the closed sums of the regularised upper incomplete gamma function at whole and half numbers (Abramowitz and
    Stegun 26.4.4 and 26.4.5).
    """
    half = statistic / 2
    if freedom % 2 == 0:
        terms = [
            math.exp(k * math.log(half) - half - math.lgamma(k + 1)) if half else float(k == 0)
            for k in range(freedom // 2)
        ]
        return min(1.0, sum(terms))
    tail = math.erfc(math.sqrt(half))
    terms = [
        math.exp((k - 0.5) * math.log(half) - half - math.lgamma(k + 0.5)) if half else 0.0
        for k in range(1, (freedom + 1) // 2)
    ]
    return min(1.0, tail + sum(terms))
