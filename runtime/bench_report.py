"""Samples of a benchmark -> the numbers that are shown and written as JSON."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, Any

from .bench import percentile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .bench import Sample

SCHEMA = "pilotfish-bench/2"


def summarise(mode: str, samples: Sequence[Sample], peak_memory_bytes: int) -> dict[str, Any]:
    """One entry of ``runs``: medians over the samples of a mode, counts over all of them."""
    speeds = [sample.tokens_per_s for sample in samples]
    token_times = [time for sample in samples for time in sample.tpot_ms]
    drafted = sum(sample.stats.num_drafted for sample in samples)
    rounds = sum(sample.stats.num_rounds for sample in samples)
    return {
        "mode": mode,
        "samples": len(samples),
        "tokens_per_s": {"median": statistics.median(speeds), "min": min(speeds), "max": max(speeds)},
        "ttft_ms": statistics.median(sample.ttft_ms for sample in samples),
        "tpot_ms": {"p50": percentile(token_times, 0.5), "p99": percentile(token_times, 0.99)},
        "acceptance_rate": sum(sample.stats.num_accepted for sample in samples) / drafted if drafted else None,
        "acceptance_length": sum(len(sample.token_ids) - 1 for sample in samples) / rounds if rounds else None,
        "acceptance_by_position": _by_position([size for sample in samples for size in sample.round_tokens]),
        "lossy": any(sample.stats.lossy for sample in samples),
        "overhead_share": statistics.median(sample.overhead_share for sample in samples),
        "peak_memory_bytes": peak_memory_bytes,
    }


def _by_position(round_tokens: Sequence[int]) -> list[float]:
    """Share of rounds that gave a k-th drafted token, of those that gave the ones before; k = 1, 2, ..."""
    reached = [sum(size > depth for size in round_tokens) for depth in range(max(round_tokens, default=1))]
    return [after / before for before, after in itertools.pairwise(reached)]


def categories(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, float]]:
    """Per prompt category: median tokens/s of each mode."""
    return {
        name: {mode: statistics.median(sample.tokens_per_s for sample in group) for mode, group in chosen.items()}
        for name, chosen in _by_category(samples)
    }


def category_details(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Per prompt category and mode but "plain": median of the paired ratios to plain, and the acceptance rate."""
    return {
        name: {mode: _details(chosen["plain"], chosen[mode]) for mode in chosen if mode != "plain"}
        for name, chosen in _by_category(samples)
    }


def outputs_equal(samples: Mapping[str, Sequence[Sample]]) -> bool | None:
    """Whether every mode's generations gave plain decoding's tokens; None without another mode."""
    others = [group for mode, group in samples.items() if mode != "plain"]
    if not others:
        return None
    plain = [sample.token_ids for sample in samples["plain"]]
    return all([sample.token_ids for sample in group] == plain for group in others)


def _by_category(samples: Mapping[str, Sequence[Sample]]) -> Iterator[tuple[str, dict[str, list[Sample]]]]:
    for name in sorted({sample.category for sample in samples["plain"]}):
        yield name, {mode: [sample for sample in group if sample.category == name] for mode, group in samples.items()}


def _details(plain: Sequence[Sample], group: Sequence[Sample]) -> dict[str, float | None]:
    pairs = zip(plain, group, strict=True)
    drafted = sum(sample.stats.num_drafted for sample in group)
    accepted = sum(sample.stats.num_accepted for sample in group)
    return {
        "speedup": statistics.median(each.tokens_per_s / before.tokens_per_s for before, each in pairs),
        "acceptance_rate": accepted / drafted if drafted else None,
    }
