"""Runs the generations of one engine: a thread steps all that are open, in passes that they share; others wait in line.

Knows nothing of HTTP. What a round gave goes to the event loop in one call for all generations, which a second thread
makes: it wakes the loop, and whoever does that may have to wait until the loop lets go of the interpreter. The next
round begins meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.bindings import EngineBusyError

from .errors import ApiError
from .metrics import Counters

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from pilotfish.runtime import Engine, TokenStream
    from pilotfish.runtime.results import Event, Result

_MOST_RETRY_SECONDS = 60
_SECONDS_AT_FIRST = 1.0  # of a generation, as long as none has ended


@dataclass(frozen=True, slots=True)
class Update:
    """What became of a generation in a round."""

    events: Sequence[Event] = ()
    end: Result | Exception | None = None


class Generation:
    """One generation, waiting or running; the scheduler's, but for cancel()."""

    def __init__(
        self, opening: Callable[[], TokenStream], take: Callable[[Update], None], *, is_streamed: bool
    ) -> None:
        """``take`` is called in the event loop's thread, with every round's events if it is streamed."""
        self.opening = opening
        self.take = take
        self.is_streamed = is_streamed
        self.stream: TokenStream | None = None
        self.is_cancelled = False

    def cancel_stream(self) -> None:
        """Ends it within one round, if it runs. Any thread."""
        self.is_cancelled = True
        if self.stream is not None:
            self.stream.cancel()


class Scheduler:
    """One engine's generations, first come first served."""

    def __init__(self, engine: Engine, *, num_sequences: int, most_waiting: int) -> None:
        """``num_sequences`` run at a time, each with its own caches in the engine."""
        self._engine = engine
        self._num_sequences = num_sequences
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []
        self._is_closing = False
        self._threads: list[threading.Thread] = []
        self._updates: queue.SimpleQueue[list[tuple[Generation, Update]] | None] = queue.SimpleQueue()
        self.counters = Counters()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to work for an event loop."""
        self._threads = [
            threading.Thread(target=self._work, name="pilotfish-scheduler"),
            threading.Thread(target=self._tell, name="pilotfish-updates", args=(loop,)),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Cancel what runs and waits, and end the threads. Not in the event loop's thread."""
        with self._changed:
            self._is_closing = True
            for generation in (*self._waiting, *self._running):
                generation.cancel_stream()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def num_running(self) -> int:
        """Generations that have caches."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Generations that wait for some."""
        return len(self._waiting)

    def check_room(self, num_generations: int) -> None:
        """Raise ApiError, with the status 429 and when to come again, if so many more may not wait."""
        with self._changed:
            num_free = max(0, self._num_sequences - len(self._running))
            most = self._most_waiting + num_free
            num_waiting = len(self._waiting)
            if num_waiting + num_generations <= most:
                return
            self.counters.num_refused += 1
        if num_generations > self._most_waiting + self._num_sequences:
            raise ApiError(
                400,
                f"the request asks for {num_generations} generations, and this server takes at most "
                f"{self._most_waiting + self._num_sequences} at a time: ask for fewer",
                code="invalid_value",
                param="n",
            )
        seconds = self.counters.seconds_of_one(_SECONDS_AT_FIRST) * (num_waiting + 1) / self._num_sequences
        wait = max(1, min(_MOST_RETRY_SECONDS, math.ceil(seconds)))
        raise ApiError(
            429,
            f"{num_waiting} generations are waiting, and no more than {self._most_waiting} may: come again in "
            f"{wait} seconds",
            code="queue_full",
            headers={"Retry-After": str(wait)},
        )

    def submit(self, generations: Sequence[Generation]) -> None:
        """Put generations in line, all or, with check_room()'s error, none."""
        self.check_room(len(generations))
        with self._changed:
            self._waiting += generations
            self._changed.notify_all()

    def cancel(self, generation: Generation) -> None:
        """End it within one round, or at once if it waits; nothing happens if it has ended."""
        with self._changed:
            if generation in self._waiting:
                self._waiting.remove(generation)
                generation.is_cancelled = True
                return
        generation.cancel_stream()

    def _work(self) -> None:
        try:
            while self._wait_for_work():
                updates: list[tuple[Generation, Update]] = []
                self._fill(updates)
                self._run_round(updates)
                if updates:
                    self._updates.put(updates)
            for generation in self._running:
                if generation.stream is not None:
                    generation.stream.close()
        finally:
            self._updates.put(None)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        while (updates := self._updates.get()) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(_deliver, updates)

    def _wait_for_work(self) -> bool:
        """False when the scheduler is closed."""
        with self._changed:
            while not (self._waiting or self._running or self._is_closing):
                self._changed.wait()
            return not self._is_closing

    def _fill(self, updates: list[tuple[Generation, Update]]) -> None:
        """Open those that come first, as many as there is room for."""
        while len(self._running) < self._num_sequences:
            with self._changed:
                if not self._waiting:
                    return
                generation = self._waiting[0]
            try:
                generation.stream = generation.opening()
            except EngineBusyError as error:
                if self._running:
                    return  # there is room when one of these ends
                self._drop_first(generation)
                updates.append((generation, Update(end=error)))
                continue
            except Exception as error:  # noqa: BLE001 - it is the client's answer
                self._drop_first(generation)
                updates.append((generation, Update(end=error)))
                continue
            self._drop_first(generation)
            self._running.append(generation)
            if generation.is_cancelled:  # while it was opened
                generation.stream.cancel()

    def _drop_first(self, generation: Generation) -> None:
        with self._changed:
            if self._waiting and self._waiting[0] is generation:  # else it was cancelled meanwhile
                self._waiting.popleft()

    def _run_round(self, updates: list[tuple[Generation, Update]]) -> None:
        streams = [generation.stream for generation in self._running if generation.stream is not None]
        if not streams:
            return
        try:
            errors: Sequence[Exception | None] = self._engine.step_together(streams)
        except Exception as bug:  # noqa: BLE001 - it ends these generations, not the server
            errors = [bug] * len(streams)
        for generation, stream, error in zip(tuple(self._running), streams, errors, strict=True):
            update = self._update_of(generation, stream, error)
            if update is not None:
                updates.append((generation, update))

    def _update_of(self, generation: Generation, stream: TokenStream, error: Exception | None) -> Update | None:
        if error is not None:
            self._running.remove(generation)
            stream.close()
            return Update(end=error)
        if stream.finish_reason is None and not generation.is_streamed:
            return None
        events: list[Event] = []
        while (event := stream.next_ready()) is not None:
            events.append(event)
        if stream.finish_reason is None:
            return Update(events) if events else None
        self._running.remove(generation)
        result = stream.result()
        self.counters.add(result.stats)
        return Update(events, result)


def _deliver(updates: list[tuple[Generation, Update]]) -> None:
    for generation, update in updates:
        generation.take(update)
