"""Opens the bundles of commands, with a bar on stderr where that takes longer than a second."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn

from pilotfish.runtime.engine import Engine

from .bars import passing_bar
from .console import notes

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE_SECONDS = 1.0
_WORDS = {
    "reading": "reading the bundle",
    "measuring": "measuring passes, once for this machine",
    "recording": "recording rounds",
}


def open_engine(bundle: str, **keywords: Any) -> Engine:
    """Engine(bundle, ...)."""
    if not notes().is_terminal:
        return Engine(bundle, **keywords)
    with contextlib.closing(LoadingBar()) as bar:
        return Engine(bundle, progress=bar.show, **keywords)


class LoadingBar:
    """Shows Engine's progress once a second has gone by, until it is closed."""

    def __init__(self) -> None:
        """Begin to count the time."""
        self._began = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def show(self, stage: str, done: int, total: int) -> None:
        """Engine's ``progress``."""
        if self._bar is None:
            if time.monotonic() - self._began < _PATIENCE_SECONDS and stage == "reading":
                return
            self._bar = passing_bar(
                TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
            )
            self._task = self._bar.add_task("", total=total)
            self._bar.start()
        self._bar.update(self._task, description=_WORDS[stage], completed=done)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
