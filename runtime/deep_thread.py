"""A call with a stack that deep recursion fits, of which the caller's wait can be interrupted, and has an end."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

from pilotfish.bindings import OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")

_STACK_BYTES = 256 << 20  # of addresses; memory is taken as it is used
_starting = threading.Lock()


def call_deeply(work: Callable[[], Value], seconds: float) -> Value:
    """What ``work``, which need not return before this does, gives or raises.

    Raises:
        TimeoutError: it is not done after so many seconds.
        OutOfMemoryError: there is no room for its stack.
    """
    outcomes: queue.SimpleQueue[tuple[Value, None] | tuple[None, BaseException]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcomes.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            outcomes.put((None, error))

    thread = threading.Thread(target=run, name="pilotfish-grammar", daemon=True)
    with _starting:
        usual = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        except RuntimeError as error:
            raise OutOfMemoryError(f"no thread with a stack of {_STACK_BYTES >> 20} MiB could be started") from error
        finally:
            threading.stack_size(usual)
    try:
        outcome = outcomes.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
