"""Medians with the interval that their samples allow, percentiles and jitter. Nothing is assumed of distributions."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the values between which the true one lies with the confidence of 95 %."""

    median: float
    low: float | None
    """None: fewer than six samples allow no such interval."""
    high: float | None

    @property
    def side(self) -> int:
        """Of a ratio: 1 above one, -1 below one, 0 where the spread forbids a conclusion."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 1) - (self.high < 1)


def median_interval(values: Sequence[float]) -> Interval:
    """The median and its interval by order statistics (the sign test turned around; Thompson 1936).

    The k-th smallest and the k-th largest of n values enclose the median with probability
    1 - 2 P(Binomial(n, 1/2) < k), whatever the distribution is.
    """
    ordered, n = sorted(values), len(values)
    outside, k = 0.0, 0
    while k < n // 2 and 2 * (outside + math.comb(n, k) / 2**n) <= 1 - CONFIDENCE:
        outside += math.comb(n, k) / 2**n
        k += 1
    middle = statistics.median(ordered)
    return Interval(middle, ordered[k - 1], ordered[n - k]) if k else Interval(middle, None, None)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed; 0 of none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def jitter(sequences: Sequence[Sequence[float]]) -> float:
    """Mean absolute difference of neighbours within each sequence; 0 where there are none."""
    steps = [abs(after - before) for values in sequences for before, after in itertools.pairwise(values)]
    return statistics.fmean(steps) if steps else 0.0
