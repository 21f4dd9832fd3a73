"""Lets Ctrl-C end a generation at once: Python handles signals between two calls, and a round is one call."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pilotfish.runtime.results import Event
    from pilotfish.runtime.token_stream import TokenStream


def interruptible(stream: TokenStream) -> Iterator[Event]:
    """The stream's events. Rounds run in a thread of their own, while the caller's waits where signals are handled.

    Whoever stops iterating cancels the stream. An error of a round is raised here.
    """
    arrived: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            for event in stream:
                arrived.put(event)
            arrived.put(None)
        except Exception as error:  # noqa: BLE001 - raised again where it is handled
            arrived.put(error)

    reader = threading.Thread(target=run, name="pilotfish-rounds")
    reader.start()
    try:
        while (item := arrived.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        stream.cancel()  # nothing happens after the last event
        reader.join()


@contextlib.contextmanager
def interrupt_cancels(stream: TokenStream) -> Iterator[None]:
    """Ctrl-C ends this generation, with finish_reason "cancelled", and not the program."""
    previous = signal.signal(signal.SIGINT, lambda *_: stream.cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
