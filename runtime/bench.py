"""Measures plain against speculative decoding, interleaved in one run, and what single passes cost."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.bindings import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .engine import Engine
    from .options import GenerateKeywords
    from .results import Event, Stats

VERIFY_ROWS = (1, 2, 4, 8, 16)
# Drafted tokens that a verification of the most rows has; the row before them is the last token emitted.
MAX_DRAFT_TOKENS = max(VERIFY_ROWS) - 1
# A round ends with the target's own token.
_LAST_OF_ROUND = ("plain", "corrected", "bonus")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt to measure with, and the group its numbers are shown in."""

    category: str
    ids: tuple[int, ...]
    ignore_eos: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """One generation, measured from outside: everything Python does is included."""

    category: str
    token_ids: tuple[int, ...]
    ttft_ms: float
    tokens_per_s: float
    """Tokens after the first, by the time from the first to the last."""
    tpot_ms: tuple[float, ...]
    """A token's share of its round's time, for each token after the first round."""
    round_tokens: tuple[int, ...]
    """Of each round after the first, which is prefill's."""
    overhead_share: float
    """Time that was no pass of a model, of the time from the first token to the last."""
    stats: Stats


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How much to measure."""

    new_tokens: int
    modes: Mapping[str, GenerateKeywords]
    """How each mode drafts, and how tokens are chosen, by its name; "plain" among them."""
    repeats: int


def modes(engine: Engine, num_draft_tokens: int | None, tree: GenerateKeywords) -> dict[str, GenerateKeywords]:
    """What there is to compare: "plain", every source that the bundle has, "auto" and, where one is named, "tree".

    Args:
        engine: a loaded bundle.
        num_draft_tokens: of the sources; None: as many as pay off, round by round; 0 leaves all but "plain" out.
        tree: the options tree, tree_nodes and tree_depth.
    """
    chosen: dict[str, GenerateKeywords] = {"plain": {"num_draft_tokens": 0}}
    if num_draft_tokens != 0:
        models = [name for name, has in (("draft", engine.info.has_draft), ("head", engine.info.has_head)) if has]
        for source in (*models, "lookup", *(f"lookup+{name}" for name in models)):
            chosen[source] = {"source": source, "num_draft_tokens": num_draft_tokens}
        chosen["auto"] = {}
    if tree.get("tree") is not None:
        chosen["tree"] = tree
    return chosen


def measure(
    engine: Engine, prompts: Sequence[Prompt], options: BenchOptions, on_step: Callable[[], None]
) -> dict[str, list[Sample]]:
    """Samples of each mode. Modes alternate, so that a slower minute of the machine falls on both.

    Args:
        engine: a loaded bundle.
        prompts: each is run ``options.repeats`` times in each mode, after one warm-up of each mode.
        options: how much to measure.
        on_step: called after each generation, warm-ups included.
    """
    samples: dict[str, list[Sample]] = {mode: [] for mode in options.modes}
    for drafting in options.modes.values():
        _generate(engine, prompts[0], min(options.new_tokens, 16), drafting)
        on_step()
    for prompt in prompts:
        for _ in range(options.repeats):
            for mode, drafting in options.modes.items():
                samples[mode].append(_generate(engine, prompt, options.new_tokens, drafting))
                on_step()
    return samples


def verify_ms(engine: Engine, *, context: int, repeats: int) -> dict[int, float]:
    """Median milliseconds of a target pass over 1, 2, 4, 8 and 16 rows after ``context`` tokens."""
    times = {rows: engine.time_pass(rows, context=context, num_repeats=repeats) for rows in VERIFY_ROWS}
    return {rows: 1e3 * float(statistics.median(seconds)) for rows, seconds in times.items()}


def draft_ms(engine: Engine, *, context: int, repeats: int) -> float:
    """Median milliseconds of a one-row pass of the draft."""
    return 1e3 * float(statistics.median(engine.time_pass(1, context=context, num_repeats=repeats, model=Model.DRAFT)))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed; 0 of none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def _generate(engine: Engine, prompt: Prompt, new_tokens: int, drafting: GenerateKeywords) -> Sample:
    options: GenerateKeywords = {
        "max_new_tokens": new_tokens,
        "ignore_eos": prompt.ignore_eos,
        "reuse_prefix": False,
        **drafting,
    }
    start = time.perf_counter()
    with engine.stream(prompt.ids, **options) as stream:
        arrivals = [(time.perf_counter() - start, event) for event in stream]
        stats = stream.stats
    # The draft's prefill comes after the first token: it counts as decoding, as it does for whoever waits.
    decode_seconds = arrivals[-1][0] - arrivals[0][0]
    pass_seconds = stats.prefill_seconds + stats.draft_seconds + stats.verify_seconds
    rounds = _rounds(arrivals)
    return Sample(
        category=prompt.category,
        token_ids=tuple(event.token_id for _, event in arrivals),
        ttft_ms=1e3 * arrivals[0][0],
        tokens_per_s=(len(arrivals) - 1) / decode_seconds,
        tpot_ms=tuple(1e3 * seconds / size for size, seconds in rounds for _ in range(size)),
        round_tokens=tuple(size for size, _ in rounds),
        overhead_share=(arrivals[-1][0] - pass_seconds) / decode_seconds,
        stats=stats,
    )


def _rounds(arrivals: Sequence[tuple[float, Event]]) -> list[tuple[int, float]]:
    """Tokens and seconds of each round after the first."""
    rounds: list[tuple[int, float]] = []
    previous, num_tokens = None, 0
    for seconds, event in arrivals:
        num_tokens += 1
        if event.origin in _LAST_OF_ROUND or event.finish_reason:
            if previous is not None:
                rounds.append((num_tokens, seconds - previous))
            previous, num_tokens = seconds, 0
    return rounds
