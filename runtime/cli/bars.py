"""Progress as bars on stderr, of which the newest one moves."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import Progress, ProgressColumn, TaskID

from .console import notes

if TYPE_CHECKING:
    from typing_extensions import Self


def passing_bar(*columns: ProgressColumn) -> Progress:
    """A bar on stderr that vanishes when its block ends; none where stderr is no terminal."""
    console = notes()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class Bars:
    """Bars, one after another; a new one fills the one before it."""

    def __init__(self, *columns: ProgressColumn, shown: bool = True) -> None:
        """Prepare the bars; ``shown`` is False in processes that show nothing."""
        self._bars = Progress(*columns, console=notes(), disable=not shown)
        self._task: TaskID | None = None

    def advance(self, steps: int = 1) -> None:
        """Moves the newest bar."""
        if self._task is not None:
            self._bars.advance(self._task, steps)

    def _begin(self, name: str, total: int, **fields: Any) -> None:
        self._complete()
        self._task = self._bars.add_task(name, total=total, **fields)

    def _complete(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=self._bars.tasks[self._task].total)
            self._bars.stop_task(self._task)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()
