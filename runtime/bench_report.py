"""Samples of a benchmark -> the numbers that are shown and written as JSON."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from .bench import percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .bench import Sample

SCHEMA = "pilotfish-bench/1"


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
        "overhead_share": statistics.median(sample.overhead_share for sample in samples),
        "peak_memory_bytes": peak_memory_bytes,
    }


def categories(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, Any]]:
    """Per prompt category: median tokens/s of each mode, median of the paired ratios, acceptance."""
    names = sorted({sample.category for sample in samples["plain"]})
    return {name: _category(name, samples) for name in names}


def outputs_equal(samples: Mapping[str, Sequence[Sample]]) -> bool | None:
    """Whether every pair of generations gave the same tokens; None with a single mode."""
    if "draft" not in samples:
        return None
    pairs = zip(samples["plain"], samples["draft"], strict=True)
    return all(plain.token_ids == draft.token_ids for plain, draft in pairs)


def _category(name: str, samples: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    chosen = {mode: [sample for sample in group if sample.category == name] for mode, group in samples.items()}
    result: dict[str, Any] = {
        f"{mode}_tokens_per_s": statistics.median(sample.tokens_per_s for sample in group)
        for mode, group in chosen.items()
    }
    if "draft" in chosen:
        pairs = zip(chosen["plain"], chosen["draft"], strict=True)
        result["speedup"] = statistics.median(draft.tokens_per_s / plain.tokens_per_s for plain, draft in pairs)
        drafted = sum(sample.stats.num_drafted for sample in chosen["draft"])
        accepted = sum(sample.stats.num_accepted for sample in chosen["draft"])
        result["acceptance_rate"] = accepted / drafted if drafted else None
    return result
