"""How an export reports where it is. Knows nothing about terminals."""

from __future__ import annotations

import warnings
from typing import Protocol


class Progress(Protocol):
    """Receives the stages of an export in order; a stage ends when the next begins or `finish` is called."""

    def stage(self, name: str, total: int) -> None:
        """Begins a stage of `total` steps."""

    def advance(self, steps: int = 1) -> None:
        """Counts steps of the current stage."""

    def note(self, text: str) -> None:
        """Something that the user should know although the export goes on."""

    def finish(self) -> None:
        """Ends the last stage; not called when the export fails."""


class NoProgress:
    """Discards all reports; notes become warnings."""

    def stage(self, name: str, total: int) -> None:
        """Ignored."""

    def advance(self, steps: int = 1) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """A UserWarning, so that it is not lost."""
        warnings.warn(text, stacklevel=2)

    def finish(self) -> None:
        """Ignored."""
