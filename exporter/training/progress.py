"""How a training run reports where it is. Knows nothing about terminals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .acceptance import AcceptanceScores


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step (`held_out` is None) or one held-out evaluation after it."""

    stage: str  # "text" or "self_text"
    step: int  # of the stage, from 1
    steps: int
    loss: float  # nats a token; of the held-out rows where `held_out` is set
    learning_rate: float
    tokens_per_s: float
    batch: AcceptanceScores | None
    held_out: AcceptanceScores | None = None


class TrainingProgress(Protocol):
    """Receives the phases of a run in order, and every step of the training phases."""

    def phase(self, name: str, total: int) -> None:
        """Begins a phase of `total` units, tokens or steps."""

    def advance(self, units: int) -> None:
        """Counts units of the current phase."""

    def report(self, report: StepReport) -> None:
        """A step or an evaluation is done."""


class NoTrainingProgress:
    """Discards all reports."""

    def phase(self, name: str, total: int) -> None:
        """Ignored."""

    def advance(self, units: int) -> None:
        """Ignored."""

    def report(self, report: StepReport) -> None:
        """Ignored."""
