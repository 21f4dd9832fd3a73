"""Who may begin: a generation that finds no room in the caches waits for it, first come, first served.

A thread or task that has a generation open itself is refused instead: it would wait for what it alone can end. So those
that wait hold nothing, and cannot wait for each other.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakMethod, WeakSet

from pilotfish.bindings import EngineBusyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from .rounds import Rounds
    from .token_stream import TokenStream

# Whoever waits looks again after so long: nobody tells of streams that only the garbage collector finds.
POLL_SECONDS = 1.0
DEFAULT_QUEUE = 64
MOST_QUEUED = 65_536


class Admission:
    """Opens an engine's generations: at once where there is room, or in the order in which they came."""

    def __init__(self, rounds: Rounds, most_waiting: int) -> None:
        """``most_waiting`` generations may wait; a further one is refused."""
        self.most_waiting = most_waiting
        self.rounds = rounds
        self.waiting: deque[Place] = deque()
        self.guard = threading.Lock()  # of what is looked up and then changed; no finalizer takes it
        self._open: WeakKeyDictionary[object, WeakSet[TokenStream]] = WeakKeyDictionary()
        # Weakly: an engine in a circle would keep its models until the collector comes by.
        waker = WeakMethod(self.wake)
        rounds.lock.when_freed = lambda: _call(waker())

    def wake(self) -> None:
        """Let the first that waits look again. Finalizers call it, which may wait for no lock."""
        with suppress(IndexError):
            self.waiting[0].wake()

    def open(self, opening: Callable[[], TokenStream]) -> TokenStream:
        """What ``opening`` gives, once there is room; the calling thread waits for it.

        Raises:
            EngineBusyError: there is none, and this thread cannot wait or too many do.
        """
        signals: SimpleQueue[None] = SimpleQueue()  # whose put() a finalizer may call
        with Place(self, threading.current_thread(), lambda: signals.put(None)) as place:
            while (stream := place.attempt(opening)) is None:
                with suppress(Empty):
                    signals.get(timeout=POLL_SECONDS)
        return stream

    def keep(self, owner: object, stream: TokenStream) -> None:
        """Note that a thread or a task has this stream open."""
        with self.guard:
            self._open.setdefault(owner, WeakSet()).add(stream)

    def has_open(self, owner: object) -> bool:
        """Whether this thread or task has a generation open that holds cache blocks."""
        with self.guard:
            streams = list(self._open.get(owner, ()))
        return any(not stream.request.closed for stream in streams)


class Place:
    """A generation's place among those that wait, given up at the end of its with block."""

    def __init__(self, admission: Admission, owner: object, wake: Callable[[], None]) -> None:
        """For a thread or a task; ``wake`` says that attempt() may succeed now."""
        self.wake = wake
        self._admission = admission
        self._owner = owner
        self._is_given_up = False

    def attempt(self, opening: Callable[[], TokenStream]) -> TokenStream | None:
        """What ``opening`` gives; None while others come first or hold the room.

        Raises:
            EngineBusyError: its turn will not come by waiting.
        """
        waiting = self._admission.waiting
        may_wait = not (self._admission.rounds.is_busy_here or self._admission.has_open(self._owner))
        if self in waiting:
            if waiting[0] is not self:
                return None
        elif waiting and may_wait:
            self._queue(None)
            return None
        try:
            stream = opening()
        except EngineBusyError as error:
            if not may_wait:
                raise
            if self not in waiting:
                self._queue(error)
            return None
        self._admission.keep(self._owner, stream)
        return stream

    def _queue(self, reason: EngineBusyError | None) -> None:
        with self._admission.guard:
            if self._is_given_up:  # by its task, while a worker thread was at it
                return
            if len(self._admission.waiting) < self._admission.most_waiting:
                self._admission.waiting.append(self)
                return
        if self._admission.most_waiting == 0 and reason is not None:
            raise reason
        raise EngineBusyError(
            f"the engine is busy, and its queue of {self._admission.most_waiting} is full; ask again later, or open "
            "the engine with a larger queue or num_sequences"
        ) from reason

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._admission.guard, suppress(ValueError):
            self._is_given_up = True
            self._admission.waiting.remove(self)
        self._admission.wake()


def _call(function: Callable[[], None] | None) -> None:
    if function is not None:
        function()
