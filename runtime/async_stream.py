"""A running generation for asyncio: each round runs in a worker thread, so that the event loop never waits for one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar

from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .results import Event, Result
    from .token_stream import TokenStream

Value = TypeVar("Value")


class AsyncTokenStream(AsyncIterator["Event"]):
    """An asynchronous iterator of Events, one task at a time.

    The generation begins with the first event asked for. Cancelling the task that waits for an event ends it within
    one round and frees its cache blocks, as aclose(), leaving its ``async with`` block or dropping it do.
    """

    def __init__(self, open_stream: Callable[[], TokenStream]) -> None:
        """``open_stream`` reserves the cache blocks; it is called in a worker thread."""
        self._open_stream = open_stream
        self._stream: TokenStream | None = None
        # What the event loop and a worker thread both touch; held for moments only, never during a round. Re-entrant: a
        # signal handler may cancel in the midst of them.
        self._guard = threading.RLock()
        self._is_working = False
        self._is_closed = False
        self._is_cancelled = False

    async def __anext__(self) -> Event:
        """The next token's event.

        Raises:
            InvalidArgumentError: another task is waiting for one.
        """
        event = self._stream.next_ready() if self._stream is not None and not self._is_working else None
        if event is None:
            event = await self._work(lambda stream: next(stream, None))
        if event is None:
            raise StopAsyncIteration
        return event

    async def result(self) -> Result:
        """Run to the end and return the whole generation, events that were already taken included."""
        async for _ in self:
            pass
        if self._stream is None:
            raise InvalidArgumentError("the stream was closed before it began: it has no result")
        return self._stream.result()

    def cancel(self) -> None:
        """End the generation within one round, with finish_reason "cancelled". Any thread, also before it began."""
        with self._guard:
            self._is_cancelled = True
            stream = self._stream
        if stream is not None:
            stream.cancel()

    async def aclose(self) -> None:
        """End the generation now and free its cache blocks: no further event comes. Closing twice is fine."""
        self._abandon()
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _work(self, step: Callable[[TokenStream], Value]) -> Value | None:
        """Run ``step`` in a worker thread; None once the stream is closed."""
        with self._guard:
            if self._is_working:
                raise InvalidArgumentError("another task is waiting for this stream's next event")
            if self._is_closed:
                return None
            self._is_working = True
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(None, self._run, step)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(lambda done: done.exception())  # nobody else will look at it
            self._abandon()
            loop.run_in_executor(None, self._close)
            raise

    def _run(self, step: Callable[[TokenStream], Value]) -> Value | None:
        try:
            if self._stream is None:
                self._open()
            if self._stream is None or self._is_closed:  # while it waited for a thread, or for the engine
                return None
            return step(self._stream)
        finally:
            with self._guard:
                self._is_working = False
            if self._is_closed:
                self._close()

    def _open(self) -> None:
        stream = self._open_stream()
        with self._guard:
            self._stream = stream
            is_cancelled = self._is_cancelled
        if is_cancelled:  # before there was a generation to tell it to
            stream.cancel()

    def _abandon(self) -> None:
        """Tell a worker to stop after its round."""
        with self._guard:
            self._is_closed = True
        self.cancel()

    def _close(self) -> None:
        """Free the cache blocks, unless a worker is at it, which will do so when it is through."""
        with self._guard:
            stream = None if self._is_working else self._stream
        if stream is not None:
            stream.close()
