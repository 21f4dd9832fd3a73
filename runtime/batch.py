"""Many generations by one thread: as many at a time as share passes, and the next one as soon as one ends."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pilotfish.bindings import EngineBusyError, PilotfishError, calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .results import Result
    from .rounds import Outcome, Rounds
    from .token_stream import TokenStream


def run_batch(openings: Sequence[Callable[[], TokenStream]], rounds: Rounds) -> list[Result]:
    """Open every stream, run it to its end, and return the results in the order of the openings.

    Raises:
        PilotfishError: one of them cannot be opened, or failed; all that are open are closed.
    """
    waiting = deque(enumerate(openings))
    running: dict[int, TokenStream] = {}
    results: dict[int, Result] = {}
    try:
        while waiting or running:
            _fill(waiting, running, rounds.most)
            for error in run_rounds(list(running.values()), rounds):
                if error is not None:
                    raise error
            for index, stream in list(running.items()):
                if stream.finish_reason is not None:
                    results[index] = stream.result()
                    del running[index]
    finally:
        for stream in running.values():
            stream.close()
    return [results[index] for index in range(len(openings))]


def run_rounds(streams: Sequence[TokenStream], rounds: Rounds) -> list[PilotfishError | None]:
    """Run the next round of each, in passes that they share; what those that failed failed with."""
    with rounds.lock:
        outcomes = calls.step_together([stream.request for stream in streams])
    return [_taken(stream, outcome) for stream, outcome in zip(streams, outcomes, strict=True)]


def _taken(stream: TokenStream, outcome: Outcome) -> PilotfishError | None:
    try:
        stream.take(outcome)
    except PilotfishError as error:
        return error
    return None


def _fill(waiting: deque[tuple[int, Callable[[], TokenStream]]], running: dict[int, TokenStream], most: int) -> None:
    while waiting and len(running) < most:
        index, opening = waiting[0]
        try:
            running[index] = opening()
        except EngineBusyError:
            if not running:
                raise
            return  # others hold the cache blocks: there is room when one of these ends
        waiting.popleft()
