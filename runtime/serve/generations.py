"""The generations of one request, as its task of the event loop sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .errors import client_gone
from .scheduler import Generation, Update

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from pilotfish.runtime import TokenStream
    from pilotfish.runtime.results import Event, Result

    from .scheduler import Scheduler


class Generations:
    """The generations of one request. Whoever submits them closes them at last, which does nothing if they ended."""

    def __init__(
        self,
        scheduler: Scheduler,
        openings: Sequence[Callable[[], TokenStream]],
        *,
        is_streamed: bool,
        end_at: float,
        too_late: Exception,
    ) -> None:
        """Put them in line; at ``end_at``, by the event loop's clock, they are cancelled with the error ``too_late``.

        Raises:
            ApiError: the queue is full.
        """
        self._scheduler = scheduler
        self._updates: asyncio.Queue[tuple[int, Update]] = asyncio.Queue()
        self._error: Exception | None = None
        self._all = [
            Generation(opening, self._taker(index), is_streamed=is_streamed) for index, opening in enumerate(openings)
        ]
        self._num_ended = 0
        scheduler.submit(self._all)
        self._timer = asyncio.get_running_loop().call_at(end_at, self.cancel, too_late)

    def cancel(self, error: Exception) -> None:
        """End all within one round; who waits for their updates gets the error."""
        if self._error is None:
            self._error = error
            self._updates.put_nowait((0, Update(end=error)))
            for generation in self._all:
                self._scheduler.cancel(generation)

    def close(self) -> None:
        """End all that run or wait: nobody wants their updates any more."""
        self._timer.cancel()
        self.cancel(client_gone())

    async def updates(self) -> AsyncGenerator[tuple[int, Sequence[Event], Result | None], None]:
        """The index of a generation, its events of a round, and its result with the last ones.

        Raises:
            Exception: what one of them failed with, or what cancel() was given.
        """
        while self._num_ended < len(self._all):
            index, update = await self._updates.get()
            if self._error is not None:
                raise self._error
            if isinstance(update.end, Exception):
                raise update.end
            self._num_ended += update.end is not None
            yield index, update.events, update.end

    async def ended(self) -> list[tuple[Result, Sequence[Event]]]:
        """Results and events of all, in the order of the openings; errors are updates()' ones."""
        events: dict[int, list[Event]] = {index: [] for index in range(len(self._all))}
        results: dict[int, Result] = {}
        async for index, new_events, result in self.updates():
            events[index] += new_events
            if result is not None:
                results[index] = result
        return [(results[index], events[index]) for index in events]

    def _taker(self, index: int) -> Callable[[Update], None]:
        return lambda update: self._updates.put_nowait((index, update))
