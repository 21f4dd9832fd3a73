"""The lock of an engine, which what is dropped never waits for.

The collector runs finalizers in any thread, between any two operations, whatever locks that thread holds: a finalizer
that waits for a lock may wait for a thread that waits for this one.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pilotfish.bindings import RequestHandle


class EngineLock:
    """Held during every call of an engine; re-entrant, as dropping a stream may close it in the midst of one.

    A generation that is dropped while another thread holds it is freed when that thread lets go.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None  # the thread that holds it, and how many times
        self._depth = 0
        self._dropped: deque[RequestHandle] = deque()  # whose append and popleft are atomic
        self.when_freed: Callable[[], None] = lambda: None
        """Called when a generation has given its cache blocks back, by finalizers too."""

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._free()
        except BaseException:  # an interrupt: the block is not entered, and so not left
            self._lock.release()
            raise
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
        self._lock.release()
        self._free_unless_held()  # what was dropped meanwhile

    @property
    def is_held_here(self) -> bool:
        """Whether this thread holds it."""
        return self._owner == threading.get_ident()

    def drop(self, request: RequestHandle) -> None:
        """Close a generation that nobody has any more, without waiting."""
        self._dropped.append(request)
        self._free_unless_held()

    def _free_unless_held(self) -> None:
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                self._free()
            finally:
                self._lock.release()

    def _free(self) -> None:
        while self._dropped:
            try:
                request = self._dropped.popleft()
            except IndexError:  # the collector came in between, and freed the last
                return
            request.close()
            self.when_freed()
