"""Ownership of one C object: closed once, by close(), by leaving a with block, or at the latest by the collector."""

from __future__ import annotations

import os
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from .errors import InvalidArgumentError
from .library import ffi

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from .masks import MaskCall


class _Steps(threading.local):
    """Whether this thread runs a step, which holds its engine, and what it has closed meanwhile."""

    def __init__(self) -> None:
        self.is_running = False
        self.closings: list[Callable[[], None]] = []


_steps = _Steps()
_running: deque[None] = deque()  # one a step that any thread runs; appending and popping are atomic
_abandoned: deque[Callable[[], None]] = deque()  # what the collector found meanwhile, to be freed by who ends a step


def begin_step() -> None:
    """From here on this thread holds an engine.

    Where the library asks for a mask it runs Python's code, and with it signal handlers and the collector, which know
    nothing of that.
    """
    _running.append(None)
    _steps.is_running = True


def end_step() -> None:
    """Free what was closed meanwhile, all of it also where an interrupt comes."""
    if _steps.is_running:  # not where an interrupt came before it began
        _steps.is_running = False
        _running.pop()
    _free_closings()


def _free_closings() -> None:
    if _steps.closings or _abandoned:
        try:
            if _steps.closings:
                _steps.closings.pop()()
            else:
                _free_abandoned()
        finally:
            _free_closings()


def _free_abandoned() -> None:
    try:
        free = _abandoned.popleft()
    except IndexError:  # another thread was faster
        return
    free()


def check_outside_of_steps() -> None:
    """What takes hold of an engine would wait for itself in the midst of a step.

    Raises:
        InvalidArgumentError: this thread runs one.
    """
    if _steps.is_running:
        raise InvalidArgumentError("this thread is in the midst of a round, as in a signal handler: ask again after it")


class Handle:
    """Owns a C pointer.

    A handle serves one thread at a time; close() may race with other threads' use only where the subclass says so. It
    belongs to the process that made it: a fork has its memory but not the threads that work for it, so that there it
    can neither be used nor freed.
    """

    noun: ClassVar[str]
    """What it is, in messages."""

    def __init__(self, pointer: Any, close: Callable[[Any], None]) -> None:
        """Take ownership of ``pointer``, to be freed with ``close``."""
        owner = os.getpid()

        def close_in_owner(pointer: Any, getpid: Callable[[], int] = os.getpid) -> None:
            if getpid() == owner:
                close(pointer)

        self._owner = owner
        self._pointer = ffi.gc(pointer, close_in_owner)
        self._closed = False
        # Re-entrant: a signal handler may interrupt close() in the thread that holds it.
        self._closing = threading.RLock()

    @property
    def pointer(self) -> Any:
        """The C pointer.

        Raises:
            InvalidArgumentError: the handle is closed, or belongs to the process that forked this one.
        """
        if self._closed:
            raise InvalidArgumentError(f"the {self.noun} is closed")
        if self.is_foreign:
            raise InvalidArgumentError(
                f"the {self.noun} belongs to process {self._owner} and cannot be used in its fork {os.getpid()}: "
                "load the bundle there, or start processes by spawn"
            )
        return self._pointer

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that the handle belongs to."""
        return os.getpid() != self._owner

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def close(self) -> None:
        """Free the C object now; closing twice is fine."""
        with self._closing:
            if not self._closed:
                self._closed = True
                ffi.release(self._pointer)

    def __reduce__(self) -> NoReturn:
        """Refuses to be copied to another process."""
        raise TypeError(f"the {self.noun} cannot be pickled or copied: load the bundle in each process")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class EngineHandle(Handle):
    """Owns a pf_engine."""

    noun = "engine"

    @property
    def pointer(self) -> Any:
        """The C pointer.

        Raises:
            InvalidArgumentError: the handle is closed or a fork's, or this thread runs a step: see
                check_outside_of_steps.
        """
        check_outside_of_steps()
        return super().pointer


class RequestHandle(Handle):
    """Owns a pf_request and the buffer its steps write to. Any thread may cancel, also while another one closes."""

    noun = "generation"

    def __init__(
        self,
        pointer: Any,
        close: Callable[[Any], None],
        *,
        capacity: int,
        num_top_logprobs: int,
        mask: MaskCall | None,
    ) -> None:
        """Take ownership of ``pointer``; a step writes at most ``capacity`` tokens and calls ``mask``."""
        self._is_asked: list[None] = []  # filled by close(), unlike where the collector frees the pointer
        super().__init__(pointer, partial(_close_after_step, close, self._is_asked))
        self.capacity = capacity
        self.num_top_logprobs = num_top_logprobs
        self.mask = mask
        self.tokens = ffi.new("pf_token[]", capacity)
        self.num_tokens = ffi.new("size_t*")
        self.finish = ffi.new("pf_finish*")

    def close(self) -> None:
        """Free the C object now; closing twice is fine. Waits for a step of another generation of its engine."""
        self._is_asked.append(None)
        super().close()

    def cancel(self, cancel: Callable[[Any], None]) -> None:
        """Call ``cancel`` on the pointer unless it is closed, and keep it from being closed meanwhile."""
        with self._closing:
            if not self._closed and not self.is_foreign:
                cancel(self._pointer)


def _close_after_step(close: Callable[[Any], None], is_asked: list[None], pointer: Any) -> None:
    """Closing a generation takes hold of its engine: the collector, which comes in any thread, never waits for one."""
    if _steps.is_running:
        _steps.closings.append(partial(close, pointer))
    elif _running and not is_asked:
        _abandoned.append(partial(close, pointer))
        if not _running:  # the last step has ended meanwhile
            _free_abandoned()
    else:
        close(pointer)
