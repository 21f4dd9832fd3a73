"""Ownership of one C object: closed once, by close(), by leaving a with block, or at the latest by the collector."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ._ffi import ffi

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from .masks import MaskCall


class Handle:
    """Owns a C pointer.

    A handle serves one thread at a time; close() may race with other threads' use only where the subclass says so.
    """

    def __init__(self, pointer: Any, close: Callable[[Any], None]) -> None:
        """Take ownership of ``pointer``, to be freed with ``close``."""
        self._pointer = ffi.gc(pointer, close)
        self._closed = False
        # Re-entrant: a signal handler may interrupt close() in the thread that holds it.
        self._closing = threading.RLock()

    @property
    def pointer(self) -> Any:
        """The C pointer; ValueError once closed."""
        if self._closed:
            raise ValueError(f"{type(self).__name__} is closed")
        return self._pointer

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class EngineHandle(Handle):
    """Owns a pf_engine."""


class RequestHandle(Handle):
    """Owns a pf_request and the buffer its steps write to. Any thread may cancel, also while another one closes."""

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
        super().__init__(pointer, close)
        self.capacity = capacity
        self.num_top_logprobs = num_top_logprobs
        self.mask = mask
        self.tokens = ffi.new("pf_token[]", capacity)
        self.num_tokens = ffi.new("size_t*")
        self.finish = ffi.new("pf_finish*")

    def cancel(self, cancel: Callable[[Any], None]) -> None:
        """Call ``cancel`` on the pointer unless it is closed, and keep it from being closed meanwhile."""
        with self._closing:
            if not self._closed:
                cancel(self._pointer)
