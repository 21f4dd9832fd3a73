"""Signals that end a command whose unfinished output must not stay behind."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from pilotfish.bindings.operating_system import ENDING_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXIT_SIGNALLED = 128  # plus the signal's number: what shells report


@contextlib.contextmanager
def signals_exit() -> Iterator[None]:
    """SIGTERM and a closed terminal raise SystemExit in the block, as Ctrl-C raises KeyboardInterrupt.

    Signals that the process ignores (nohup) stay ignored.
    """

    def exit_once(number: int, _frame: object) -> NoReturn:
        for other in ENDING_SIGNALS:  # `timeout` sends its signal twice: the second must not end the clean-up
            signal.signal(other, signal.SIG_IGN)
        sys.exit(_EXIT_SIGNALLED + number)

    taken = [number for number in ENDING_SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, exit_once)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
