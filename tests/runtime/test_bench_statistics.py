"""Medians with the interval that samples allow, without an assumption about how they are distributed."""

from __future__ import annotations

import random
import statistics
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pilotfish.runtime.bench_report import ratio_of_all
from pilotfish.runtime.bench_statistics import Interval, jitter, median_interval, percentile

if TYPE_CHECKING:
    from pilotfish.runtime.bench import Sample


def test_few_samples_allow_no_interval() -> None:
    for count in range(1, 6):
        assert median_interval([1.0 + index for index in range(count)]) == Interval((count + 1) / 2, None, None)
    # Six: both ends miss the median with 2 / 2^6 = 3 %.
    assert median_interval([6.0, 1.0, 5.0, 2.0, 4.0, 3.0]) == Interval(3.5, 1.0, 6.0)


@pytest.mark.parametrize("count", [6, 9, 20, 60])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    generator = random.Random(count)
    true_median = statistics.NormalDist().inv_cdf(0.5)
    held = 0
    for _ in range(2000):
        found = median_interval([generator.gauss(0, 1) ** 3 for _ in range(count)])  # far from normal, median 0
        assert found.low is not None
        assert found.high is not None
        held += found.low <= true_median <= found.high
    assert held / 2000 >= 0.94


@pytest.mark.parametrize(
    ("values", "side"),
    [([1.1] * 6, 1), ([0.9] * 6, -1), ([0.9, 1.1] * 4, 0), ([1.5] * 5, 0), ([1.0] * 8, 0)],
)
def test_a_ratio_is_on_a_side_only_where_the_interval_is(values: list[float], side: int) -> None:
    assert median_interval(values).side == side


def test_percentiles_and_jitter() -> None:
    assert [percentile([3, 1, 2], share) for share in (0.0, 0.34, 0.5, 1.0)] == [1, 2, 2, 3]
    assert percentile([], 0.5) == 0
    assert jitter([[1.0, 3.0, 2.0], [5.0], []]) == pytest.approx(1.5)  # nothing between two answers
    assert jitter([[5.0]]) == 0


def test_all_prompts_together_weigh_as_much_as_they_take() -> None:
    def sample(prompt: int, speed: float) -> Sample:
        return cast("Sample", SimpleNamespace(prompt_index=prompt, tokens_per_s=speed))

    plain = [sample(0, 100), sample(1, 50), sample(0, 100), sample(0, 10)]
    faster = [sample(0, 100), sample(1, 100), sample(0, 200), sample(0, 100)]
    # A token of each prompt: 1/100 + 1/50 of a second before, 1/100 + 1/100 after; what came thrice by its median.
    assert ratio_of_all(faster, plain) == pytest.approx(1.5)
    assert ratio_of_all(plain, plain) == 1
