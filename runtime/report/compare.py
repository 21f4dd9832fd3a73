"""What differs between benchmarks beyond noise: two builds, two devices, two bundles, two settings."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pilotfish.runtime.bench import PLAIN
from pilotfish.runtime.bench_statistics import Interval, median_interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_SHOWN = 200  # characters of a value
# Of the settings: those that change what is generated, so that prompts are no longer pairs.
_SAME_WORK = ("new_tokens", "prompt_tokens", "temperature", "top_k", "top_p", "seed")


_Pair: TypeAlias = "tuple[Sequence[float], Sequence[float]]"  # of the first report and of the other one


@dataclass(frozen=True, slots=True)
class ModeChange:
    """A mode's speed in one report relative to the first report's."""

    mode: str
    before: float
    """Median tokens a second."""
    after: float
    ratio: Interval
    is_paired: bool
    """Ratios are of the same prompts; else of medians, whose interval is wider."""
    gain: Interval | None = None
    """Of its gain over plain decoding, prompt by prompt: what a machine that became slower as a whole leaves as it is;
    None for plain itself, and where prompts are no pairs."""

    @property
    def verdict(self) -> str:
        """In words."""
        if self.ratio.low is None:
            return "too few runs to tell"
        return {1: "faster", -1: "slower", 0: "no difference beyond noise"}[self.ratio.side]

    def is_below(self, limit: float) -> bool:
        """Whether it lost more than the limit allows, beyond noise; of too few runs the ratio alone decides."""
        return self.ratio.median < limit and (self.ratio.low is None or self.ratio.side < 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One report beside the first one."""

    name: str
    changes: tuple[ModeChange, ...]
    only_one: tuple[str, ...]
    """Modes that only one of them has."""
    facts: tuple[tuple[str, str, str], ...]
    """Fields of the machine, settings and bundle that differ: name, first, this."""
    numbers: tuple[tuple[str, float, float], ...]
    """Single numbers of both: they have no spread, so that nothing is concluded."""
    is_paired: bool


def compare(first: dict[str, Any], other: dict[str, Any], name: str) -> Comparison:
    """Compare two reports; ``name`` is the second one's."""
    is_paired = first["prompts"]["sha256"] == other["prompts"]["sha256"] and all(
        first["settings"].get(key) == other["settings"].get(key) for key in _SAME_WORK
    )
    before = {run["mode"]: run for run in first["runs"]}
    after = {run["mode"]: run for run in other["runs"]}
    orders = (first["prompts"]["order"], other["prompts"]["order"])
    speeds = {mode: (before[mode]["speeds"], after[mode]["speeds"]) for mode in before if mode in after}
    plain = speeds.get(PLAIN) if is_paired else None
    return Comparison(
        name=name,
        changes=tuple(_change(mode, pair, plain, orders, is_paired=is_paired) for mode, pair in speeds.items()),
        only_one=tuple(sorted(before.keys() ^ after.keys())),
        facts=_different_facts(first, other),
        numbers=_numbers(first, other),
        is_paired=is_paired,
    )


def _change(
    mode: str,
    speeds: _Pair,
    plain: _Pair | None,
    orders: tuple[Sequence[int], Sequence[int]],
    *,
    is_paired: bool,
) -> ModeChange:
    """``plain``: plain decoding's speeds, where the turns of both reports are the same prompts."""
    before, after = (statistics.median(each) for each in speeds)
    ratio = (_paired(speeds, orders) if is_paired else None) or _unpaired(*map(median_interval, speeds))
    gain = None
    if plain is not None and mode != PLAIN:  # of the gains over plain decoding of the same turn
        first, second = (
            [each / own for each, own in zip(*pair, strict=True)] for pair in zip(speeds, plain, strict=True)
        )
        gain = _paired((first, second), orders)
    return ModeChange(mode, before, after, ratio, is_paired, gain)


def _paired(values: _Pair, orders: tuple[Sequence[int], Sequence[int]]) -> Interval | None:
    """Of the ratios prompt by prompt; None where fewer than two prompts are in both."""
    first, second = (_by_prompt(order, each) for order, each in zip(orders, values, strict=True))
    shared = first.keys() & second.keys()
    if len(shared) < 2:  # noqa: PLR2004 - one prompt's runs are no pairs
        return None
    return median_interval([statistics.median(second[key]) / statistics.median(first[key]) for key in shared])


def _by_prompt(order: Sequence[int], speeds: Sequence[float]) -> dict[int, list[float]]:
    grouped: dict[int, list[float]] = {}
    for index, speed in zip(order, speeds, strict=True):
        grouped.setdefault(index, []).append(speed)
    return grouped


def _unpaired(before: Interval, after: Interval) -> Interval:
    """Of the ratio of two medians: from the least to the most that their intervals allow."""
    ratio = after.median / before.median
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return Interval(ratio, None, None)
    return Interval(ratio, after.low / before.high, after.high / before.low)


def _different_facts(first: dict[str, Any], other: dict[str, Any]) -> tuple[tuple[str, str, str], ...]:
    found = []
    for part in ("machine", "bundle", "settings"):
        before, after = (dict(_leaves(part, each[part])) for each in (first, other))
        found += [
            (name, before.get(name, "-"), after.get(name, "-"))
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ]
    if first["prompts"]["sha256"] != other["prompts"]["sha256"]:
        found.append(("prompts", first["prompts"]["sha256"][:16], other["prompts"]["sha256"][:16]))
    return tuple((name, _shortened(before), _shortened(after)) for name, before, after in found)


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    """The values of nested objects by their path, as text."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{name}: {key}", inner)
    else:
        yield name, str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _numbers(first: dict[str, Any], other: dict[str, Any]) -> tuple[tuple[str, float, float], ...]:
    rows = [
        (f"pass of {rows} row(s), ms", first["verify_ms"][rows], other["verify_ms"][rows])
        for rows in first["verify_ms"]
        if rows in other["verify_ms"]
    ]
    after = {run["mode"]: run for run in other["runs"]}
    for run in first["runs"]:
        if run["mode"] in after:
            rows.append((f"{run['mode']}: first token, ms", run["ttft_ms"], after[run["mode"]]["ttft_ms"]))
            lengths = run["acceptance_length"], after[run["mode"]]["acceptance_length"]
            if run["mode"] != PLAIN and None not in lengths:
                rows.append((f"{run['mode']}: tokens a round", *lengths))
    rows.append(("load, seconds", first["load"]["seconds"], other["load"]["seconds"]))
    rows.append(("peak memory, MB", first["memory"]["peak_bytes"] / 1e6, other["memory"]["peak_bytes"] / 1e6))
    return tuple(rows)
