"""Samples of a benchmark -> the numbers that are shown and written as JSON; docs/report.md explains each of them."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, Any

from .bench import PLAIN
from .bench_statistics import jitter, median_interval, percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .bench import Sample
    from .bench_statistics import Interval

SCHEMA = "pilotfish-bench/3"
_SOURCES = ("lookup", "model", "head")


def summarise_all(samples: Mapping[str, Sequence[Sample]], peak_memory_bytes: int) -> list[dict[str, Any]]:
    """The entries of ``runs``."""
    plain = samples[PLAIN]
    return [summarise(mode, group, plain, peak_memory_bytes) for mode, group in samples.items()]


def summarise(mode: str, samples: Sequence[Sample], plain: Sequence[Sample], peak_memory_bytes: int) -> dict[str, Any]:
    """One entry of ``runs``: medians over the samples of a mode, counts over all of them, and ratios to plain."""
    speeds = [sample.tokens_per_s for sample in samples]
    token_times = [time for sample in samples for time in sample.tpot_ms]
    drafted = sum(sample.stats.num_drafted for sample in samples)
    rounds = sum(sample.stats.num_rounds for sample in samples)
    return {
        "mode": mode,
        "samples": len(samples),
        "tokens_per_s": {"median": statistics.median(speeds), "min": min(speeds), "max": max(speeds)},
        "speeds": speeds,
        "ratio": interval_entry(paired_ratio(samples, plain)),
        "ratio_of_all": ratio_of_all(samples, plain),
        "predicted_ratio": _predicted(samples, plain),
        "ttft_ms": statistics.median(sample.ttft_ms for sample in samples),
        "tpot_ms": {"p50": percentile(token_times, 0.5), "p99": percentile(token_times, 0.99)},
        "gap_ms": _gaps(samples),
        "acceptance_rate": sum(sample.stats.num_accepted for sample in samples) / drafted if drafted else None,
        "acceptance_length": sum(len(sample.token_ids) - 1 for sample in samples) / rounds if rounds else None,
        "acceptance_by_position": _by_position([size for sample in samples for size in sample.round_tokens]),
        "acceptance_by_source": _by_source(samples),
        "shares": _shares(samples),
        "overhead_share": statistics.median(sample.overhead_share for sample in samples),
        "joules_per_token": _joules(samples),
        "peak_memory_bytes": peak_memory_bytes,
    }


def paired_ratio(samples: Sequence[Sample], plain: Sequence[Sample]) -> Interval:
    """Speed relative to plain decoding of the same prompt in the same turn: median and interval.

    Of several prompts each counts once, by the median of its turns, however often the time sufficed for it.
    """
    ratios = [each.tokens_per_s / before.tokens_per_s for each, before in zip(samples, plain, strict=True)]
    by_prompt = _by_prompt(samples, ratios)
    return median_interval(by_prompt[0] if len(by_prompt) == 1 else [statistics.median(each) for each in by_prompt])


def ratio_of_all(samples: Sequence[Sample], plain: Sequence[Sample]) -> float:
    """Plain decoding's time for a token of every prompt by the mode's; of several turns of a prompt the median.

    Noise moves it less than the median of the prompts' ratios, which differ much more than two runs do.
    """

    def seconds(group: Sequence[Sample]) -> float:
        return sum(map(statistics.median, _by_prompt(group, [1 / sample.tokens_per_s for sample in group])))

    return seconds(plain) / seconds(samples)


def _by_prompt(samples: Sequence[Sample], values: Iterable[float]) -> list[list[float]]:
    found: dict[int, list[float]] = {}
    for sample, value in zip(samples, values, strict=True):
        found.setdefault(sample.prompt_index, []).append(value)
    return list(found.values())


def typical_prompt(samples: Mapping[str, Sequence[Sample]], mode: str) -> int:
    """Index of the prompt on which a mode gained as much as in the middle of its prompts."""
    pairs = zip(samples[mode], samples[PLAIN], strict=True)
    gains = sorted((each.tokens_per_s / before.tokens_per_s, each.prompt_index) for each, before in pairs)
    return gains[len(gains) // 2][1]


def interval_entry(interval: Interval) -> dict[str, Any]:
    """An interval of ratios as JSON, with whether it allows a conclusion."""
    return {
        "median": interval.median,
        "low": interval.low,
        "high": interval.high,
        "conclusive": interval.side != 0,
    }


def categories(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, float]]:
    """Per prompt category: median tokens/s of each mode."""
    return {
        name: {mode: statistics.median(sample.tokens_per_s for sample in group) for mode, group in chosen.items()}
        for name, chosen in _by_category(samples)
    }


def category_details(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Per prompt category and mode but "plain": median of the paired ratios to plain, and the acceptance rate."""
    return {
        name: {mode: _details(chosen[PLAIN], chosen[mode]) for mode in chosen if mode != PLAIN}
        for name, chosen in _by_category(samples)
    }


def outputs_equal(samples: Mapping[str, Sequence[Sample]]) -> bool | None:
    """Whether every mode's generations gave plain decoding's tokens; None without another mode."""
    others = [group for mode, group in samples.items() if mode != PLAIN]
    if not others:
        return None
    plain = [sample.token_ids for sample in samples[PLAIN]]
    return all([sample.token_ids for sample in group] == plain for group in others)


def _predicted(samples: Sequence[Sample], plain: Sequence[Sample]) -> float | None:
    """The gain by the costs that rounds are planned by, without a clock; None where none were counted."""

    def speed(group: Sequence[Sample]) -> float:
        seconds = sum(sample.stats.counted_seconds for sample in group)
        return sum(len(sample.token_ids) - 1 for sample in group) / seconds if seconds else 0.0

    before, after = speed(plain), speed(samples)
    return after / before if before and after else None


def _gaps(samples: Sequence[Sample]) -> dict[str, float]:
    gaps = [gap for sample in samples for gap in sample.gaps_ms]
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: percentile(gaps, share) for name, share in shares.items()} | {
        "jitter": jitter([sample.gaps_ms for sample in samples])
    }


def _by_position(round_tokens: Sequence[int]) -> list[float]:
    """Share of rounds that gave a k-th drafted token, of those that gave the ones before; k = 1, 2, ..."""
    reached = [sum(size > depth for size in round_tokens) for depth in range(max(round_tokens, default=1))]
    return [after / before for before, after in itertools.pairwise(reached)]


def _by_source(samples: Sequence[Sample]) -> dict[str, dict[str, int]]:
    """Drafted and accepted tokens and rounds of each source that drafted; "model" is called "draft" outside."""
    found = {}
    for source in _SOURCES:
        counts = {
            what: sum(getattr(sample.stats, f"num_{source}_{what}") for sample in samples)
            for what in ("rounds", "drafted", "accepted")
        }
        if counts["drafted"]:
            found["draft" if source == "model" else source] = counts
    return found


def _shares(samples: Sequence[Sample]) -> dict[str, float]:
    """Of the time from the first token to the last; the rest is Python and what the process waited."""
    total = sum(sample.decode_seconds for sample in samples)
    parts = {
        "draft": sum(sample.stats.draft_seconds for sample in samples) / total,
        "verify": sum(sample.stats.verify_seconds for sample in samples) / total,
        "accept": sum(sample.stats.other_seconds for sample in samples) / total,
    }
    return parts | {"rest": max(0.0, 1 - sum(parts.values()))}


def _joules(samples: Sequence[Sample]) -> float | None:
    spent = [sample.joules for sample in samples if sample.joules is not None]
    return sum(spent) / sum(len(sample.token_ids) for sample in samples) if len(spent) == len(samples) else None


def _by_category(samples: Mapping[str, Sequence[Sample]]) -> Iterator[tuple[str, dict[str, list[Sample]]]]:
    for name in sorted({sample.category for sample in samples[PLAIN]}):
        yield name, {mode: [sample for sample in group if sample.category == name] for mode, group in samples.items()}


def _details(plain: Sequence[Sample], group: Sequence[Sample]) -> dict[str, Any]:
    drafted = sum(sample.stats.num_drafted for sample in group)
    accepted = sum(sample.stats.num_accepted for sample in group)
    ratio = paired_ratio(group, plain)
    return {
        "speedup": ratio.median,
        "conclusive": ratio.side != 0,
        "acceptance_rate": accepted / drafted if drafted else None,
    }
