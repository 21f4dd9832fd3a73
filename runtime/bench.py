"""Measures plain against speculative decoding, interleaved in one run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pilotfish.bindings import EngineInfo

    from .bench_sensors import Sensors
    from .engine import Engine
    from .options import GenerateKeywords
    from .results import Event, Stats

PLAIN = "plain"
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

    prompt_index: int
    category: str
    token_ids: tuple[int, ...]
    ttft_ms: float
    tokens_per_s: float
    """Tokens after the first, by the time from the first to the last."""
    tpot_ms: tuple[float, ...]
    """A token's share of its round's time, for each token after the first round."""
    gaps_ms: tuple[float, ...]
    """From one round's tokens to the next one's, which come together: what a reader waits."""
    round_tokens: tuple[int, ...]
    """Of each round after the first, which is prefill's."""
    decode_seconds: float
    """From the first token to the last."""
    overhead_share: float
    """Time that was no pass of a model, of the time from the first token to the last."""
    stats: Stats
    joules: float | None = None
    """Of the whole generation, where the device tells."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How much to measure."""

    new_tokens: int
    modes: Mapping[str, GenerateKeywords]
    """How each mode drafts, and how tokens are chosen, by its name; "plain" among them."""
    repeats: int
    deadline: float | None = None
    """In seconds of time.perf_counter(): no prompt begins after it once every category was measured; None: no end."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The samples of each mode, in the same order of prompts, and what was left out."""

    samples: dict[str, list[Sample]]
    num_too_short: int
    """Turns whose answer had one token in some mode, so that there is no time between tokens."""
    num_not_reached: int
    """Turns for which the time did not suffice."""


def drafting_models(info: EngineInfo) -> list[str]:
    """The sources that a bundle has a model for."""
    return [name for name, has in (("draft", info.has_draft), ("head", info.has_head)) if has]


def modes(engine: Engine, num_draft_tokens: int | None, tree: GenerateKeywords) -> dict[str, GenerateKeywords]:
    """What there is to compare: "plain", every source that the bundle has, "auto" and, where one is named, "tree".

    Args:
        engine: a loaded bundle.
        num_draft_tokens: of the sources; None: as many as pay off, round by round; 0 leaves all but "plain" out.
        tree: the options tree, tree_nodes and tree_depth.
    """
    chosen: dict[str, GenerateKeywords] = {PLAIN: {"num_draft_tokens": 0}}
    if num_draft_tokens != 0:
        models = drafting_models(engine.info)
        for source in (*models, "lookup", *(f"lookup+{name}" for name in models)):
            chosen[source] = {"source": source, "num_draft_tokens": num_draft_tokens}
        chosen["auto"] = {}
    if tree.get("tree") is not None:
        chosen["tree"] = tree
    return chosen


def choose_modes(available: dict[str, GenerateKeywords], names: str | None) -> dict[str, GenerateKeywords]:
    """The modes of a list such as "draft,auto", and "plain", which all are compared with; None: all there are.

    Raises:
        InvalidArgumentError: the bundle has no such mode.
    """
    if names is None:
        return available
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in available:
            raise InvalidArgumentError(f"--modes has {name!r}, this bundle has {', '.join(available)}")
    return {name: options for name, options in available.items() if name == PLAIN or name in wanted}


def measure(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: BenchOptions,
    sensors: Sensors,
    on_step: Callable[[], None],
) -> Measured:
    """Samples of each mode. Modes alternate, so that a slower minute of the machine falls on all.

    Each prompt begins with another mode, so that none always runs after the same one.

    Args:
        engine: a loaded bundle.
        prompts: each is run ``options.repeats`` times in each mode, after one warm-up of each mode.
        options: how much to measure.
        sensors: what the device tells of energy.
        on_step: called after each generation, warm-ups included.

    Raises:
        InvalidArgumentError: every answer was too short to be timed.
    """
    names = list(options.modes)

    def run(mode: str, index: int) -> Sample:
        sample = _generate(engine, index, prompts[index], options.new_tokens, options.modes[mode], sensors=sensors)
        on_step()
        return sample

    for name in names:
        run(name, 0)
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    num_done = num_too_short = 0
    for turn, index in enumerate(_turns(prompts, options)):
        first = turn % len(names)
        group = {name: run(name, index) for name in names[first:] + names[:first]}
        num_done += 1
        if any(sample.decode_seconds == 0 for sample in group.values()):
            num_too_short += 1
            continue
        for name, sample in group.items():
            samples[name].append(sample)
    if not samples[PLAIN]:
        raise InvalidArgumentError("every answer had a single token, which leaves nothing to time: give other prompts")
    return Measured(samples, num_too_short, len(prompts) * options.repeats - num_done)


def _turns(prompts: Sequence[Prompt], options: BenchOptions) -> Iterator[int]:
    """Indices of prompts, all of them before any comes again; past the deadline only one of each category to come."""
    waiting = {prompt.category for prompt in prompts}
    for _ in range(options.repeats):
        for index, prompt in enumerate(prompts):
            is_late = options.deadline is not None and time.perf_counter() > options.deadline
            if not is_late or prompt.category in waiting:
                waiting.discard(prompt.category)
                yield index


def _generate(
    engine: Engine, index: int, prompt: Prompt, new_tokens: int, drafting: GenerateKeywords, *, sensors: Sensors
) -> Sample:
    options: GenerateKeywords = {
        "max_new_tokens": new_tokens,
        "ignore_eos": prompt.ignore_eos,
        "reuse_prefix": False,
        **drafting,
    }
    before = sensors.joules()
    start = time.perf_counter()
    with engine.stream(prompt.ids, **options) as stream:
        arrivals = [(time.perf_counter() - start, event) for event in stream]
        stats = stream.stats
    spent = sensors.joules_since(before)
    # The draft's prefill comes after the first token: it counts as decoding, as it does for whoever waits.
    decode_seconds = arrivals[-1][0] - arrivals[0][0] if len(arrivals) > 1 else 0.0
    pass_seconds = stats.prefill_seconds + stats.draft_seconds + stats.verify_seconds
    rounds = rounds_of(arrivals)
    return Sample(
        prompt_index=index,
        category=prompt.category,
        token_ids=tuple(event.token_id for _, event in arrivals),
        ttft_ms=1e3 * arrivals[0][0],
        tokens_per_s=(len(arrivals) - 1) / decode_seconds if decode_seconds else 0.0,
        tpot_ms=tuple(1e3 * seconds / size for size, seconds in rounds for _ in range(size)),
        gaps_ms=tuple(1e3 * seconds for _, seconds in rounds),
        round_tokens=tuple(size for size, _ in rounds),
        decode_seconds=decode_seconds,
        overhead_share=(arrivals[-1][0] - pass_seconds) / decode_seconds if decode_seconds else 0.0,
        stats=stats,
        joules=spent,
    )


def rounds_of(arrivals: Sequence[tuple[float, Event]]) -> list[tuple[int, float]]:
    """Tokens and seconds of each round after the first, of events with the seconds at which they came."""
    rounds: list[tuple[int, float]] = []
    previous, num_tokens = None, 0
    for seconds, event in arrivals:
        num_tokens += 1
        if event.origin in _LAST_OF_ROUND or event.finish_reason:
            if previous is not None:
                rounds.append((num_tokens, seconds - previous))
            previous, num_tokens = seconds, 0
    return rounds
