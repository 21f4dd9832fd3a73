"""How an export reports where it is. Knows nothing about terminals."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the stages of an export in order; a stage ends when the next begins or `finish` is called."""

    def stage(self, name: str, total: int) -> None:
        """Begins a stage of `total` steps."""

    def advance(self, steps: int = 1) -> None:
        """Counts steps of the current stage."""

    def finish(self) -> None:
        """Ends the last stage; not called when the export fails."""


class NoProgress:
    """Discards all reports."""

    def stage(self, name: str, total: int) -> None:
        """Ignored."""

    def advance(self, steps: int = 1) -> None:
        """Ignored."""

    def finish(self) -> None:
        """Ignored."""
