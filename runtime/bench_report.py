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
        "lossy": any(sample.stats.lossy for sample in samples),
        "overhead_share": statistics.median(sample.overhead_share for sample in samples),
        "peak_memory_bytes": peak_memory_bytes,
    }


def categories(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, Any]]:
    """Per prompt category: median tokens/s of each mode, median of the paired ratios, acceptance."""
    names = sorted({sample.category for sample in samples["plain"]})
    return {name: _category(name, samples) for name in names}


def outputs_equal(samples: Mapping[str, Sequence[Sample]]) -> bool | None:
    """Whether every mode's generations gave plain decoding's tokens; None without another mode."""
    others = [group for mode, group in samples.items() if mode != "plain"]
    if not others:
        return None
    plain = [sample.token_ids for sample in samples["plain"]]
    return all([sample.token_ids for sample in group] == plain for group in others)


def _category(name: str, samples: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    chosen = {mode: [sample for sample in group if sample.category == name] for mode, group in samples.items()}
    result: dict[str, Any] = {
        f"{mode}_tokens_per_s": statistics.median(sample.tokens_per_s for sample in group)
        for mode, group in chosen.items()
    }
    for mode in chosen.keys() - {"plain"}:
        prefix = "" if mode == "draft" else f"{mode}_"
        pairs = zip(chosen["plain"], chosen[mode], strict=True)
        result[prefix + "speedup"] = statistics.median(each.tokens_per_s / plain.tokens_per_s for plain, each in pairs)
        drafted = sum(sample.stats.num_drafted for sample in chosen[mode])
        accepted = sum(sample.stats.num_accepted for sample in chosen[mode])
        result[prefix + "acceptance_rate"] = accepted / drafted if drafted else None
    return result
