"""One generation looked at round by round: when it drafted, verified and accepted, and where its tokens come from."""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .token_origins import OriginTeller

if TYPE_CHECKING:
    from .bench import Prompt
    from .engine import Engine
    from .options import GenerateKeywords
    from .results import Stats

MOST_ROUNDS = 40  # that a report shows


@dataclass(frozen=True, slots=True)
class TimedRound:
    """Milliseconds of a round's parts in their order, from when the first token came, and its tokens."""

    start_ms: float
    draft_ms: float
    verify_ms: float
    accept_ms: float
    rest_ms: float
    """Outside the library: Python."""
    num_drafted: int
    tokens: tuple[tuple[str, str], ...]
    """Text and origin of each, one of token_origins.ORIGINS."""


def timeline(engine: Engine, prompt: Prompt, new_tokens: int, drafting: GenerateKeywords) -> list[dict[str, Any]]:
    """The first rounds of an answer. It is a generation of its own: those that are measured are not looked into."""
    options: GenerateKeywords = {
        "max_new_tokens": new_tokens,
        "ignore_eos": prompt.ignore_eos,
        "reuse_prefix": False,
        "explain": True,
        **drafting,
    }
    teller = OriginTeller()
    rounds: list[TimedRound] = []
    with engine.stream(prompt.ids, **options) as stream:
        teller.tell(next(stream), stream.rounds)
        began = start = time.perf_counter()
        before = stream.stats
        for first in stream:
            now, after = time.perf_counter(), stream.stats
            events = itertools.chain([first], iter(stream.next_ready, None))
            tokens = tuple((event.text, teller.tell(event, stream.rounds)) for event in events)
            rounds.append(_timed(before, after, start - began, now - start, tokens))
            start, before = time.perf_counter(), after
    return [asdict(each) for each in rounds[:MOST_ROUNDS]]


def _timed(
    before: Stats, after: Stats, start: float, seconds: float, tokens: tuple[tuple[str, str], ...]
) -> TimedRound:
    draft = after.draft_seconds - before.draft_seconds
    verify = after.verify_seconds - before.verify_seconds
    accept = after.other_seconds - before.other_seconds
    return TimedRound(
        start_ms=1e3 * start,
        draft_ms=1e3 * draft,
        verify_ms=1e3 * verify,
        accept_ms=1e3 * accept,
        rest_ms=1e3 * max(0.0, seconds - draft - verify - accept),
        num_drafted=after.num_drafted - before.num_drafted,
        tokens=tokens,
    )
