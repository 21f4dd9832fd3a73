"""A running generation for asyncio: each round runs in a worker thread, so that the event loop never waits for one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pilotfish.bindings import InvalidArgumentError

from .admission import POLL_SECONDS, Place
from .results import never_begun

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .admission import Admission
    from .results import Event, Result
    from .token_stream import TokenStream

Value = TypeVar("Value")

_ANOTHER_TASK = "another task is waiting for this stream's next event"


class AsyncTokenStream(AsyncIterator["Event"]):
    """An asynchronous iterator of Events, one task at a time.

    The generation begins with the first event asked for, or waits in the engine's queue until there is room for it.
    Cancelling the task that waits for an event ends it within one round and frees its cache blocks, as aclose(),
    leaving its ``async with`` block or dropping it do.
    """

    def __init__(
        self, prepare: Callable[[], Callable[[], TokenStream]], admission: Admission, *, num_prompt_tokens: int
    ) -> None:
        """``prepare`` gives what reserves the cache blocks; both are called in a worker thread."""
        self._prepare = prepare
        self._num_prompt_tokens = num_prompt_tokens
        self._opening: Callable[[], TokenStream] | None = None
        self._admission = admission
        self._stream: TokenStream | None = None
        self._look_again: Callable[[], None] = lambda: None  # while it waits for room
        self._is_beginning = False
        self._is_waiting = False  # in the engine's queue
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
        if event is None and self._stream is None:
            await self._begin()
        if event is None:
            event = await self._work(self._next)
        if event is None:
            raise StopAsyncIteration
        return event

    async def result(self) -> Result:
        """Run to the end and return the whole generation, events that were already taken included.

        One that was cancelled in the engine's queue has no tokens.

        Raises:
            InvalidArgumentError: it was closed before it began.
        """
        async for _ in self:
            pass
        if self._stream is None:
            if not self._is_closed:
                return never_begun(self._num_prompt_tokens)
            raise InvalidArgumentError("the stream was closed before it began: it has no result")
        return self._stream.result()

    def cancel(self) -> None:
        """End the generation within one round, with finish_reason "cancelled". Any thread, also before it began."""
        with self._guard:
            self._is_cancelled = True
            stream = self._stream
        if stream is not None:
            stream.cancel()
        self._look_again()

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

    async def _begin(self) -> None:
        """Open the generation, once there is room for it; not if it is cancelled or closed meanwhile."""
        if self._is_beginning:
            raise InvalidArgumentError(_ANOTHER_TASK)
        self._is_beginning = True
        turn = asyncio.Event()
        self._look_again = _from_any_thread(asyncio.get_running_loop(), turn)
        try:
            with Place(self._admission, asyncio.current_task(), self._look_again) as place:
                while not (await self._work(lambda: self._attempt(place)) or self._is_closed):
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(turn.wait(), POLL_SECONDS)
                    turn.clear()
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            self._is_beginning = False

    async def _work(self, step: Callable[[], Value]) -> Value | None:
        """Run ``step`` in a worker thread; None once the stream is closed."""
        with self._guard:
            if self._is_working:
                raise InvalidArgumentError(_ANOTHER_TASK)
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

    def _run(self, step: Callable[[], Value]) -> Value | None:
        try:
            return None if self._is_closed else step()  # while it waited for a thread
        finally:
            with self._guard:
                self._is_working = False
            if self._is_closed:
                self._close()

    def _next(self) -> Event | None:
        return None if self._stream is None else next(self._stream, None)

    def _attempt(self, place: Place) -> bool:
        """Whether there is nothing to wait for any more: the generation is open, or nobody wants it."""
        if self._opening is None:
            self._opening = self._prepare()
        if self._is_cancelled and self._is_waiting:
            return True
        stream = place.attempt(self._opening)
        self._is_waiting = stream is None
        if stream is None:
            return False
        with self._guard:
            self._stream = stream
            is_cancelled = self._is_cancelled
        if is_cancelled:  # before there was a generation to tell it to
            stream.cancel()
        return True

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


def _from_any_thread(loop: asyncio.AbstractEventLoop, turn: asyncio.Event) -> Callable[[], None]:
    def look_again() -> None:
        with suppress(RuntimeError):  # a loop that has ended
            loop.call_soon_threadsafe(turn.set)

    return look_again
