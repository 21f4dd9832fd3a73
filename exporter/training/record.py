"""Everything that is known about a finished run: what the card shows and training.json holds."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .storage import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .acceptance import AcceptanceScores
    from .evaluate import CategoryScores
    from .options import TrainOptions
    from .state import Measurement
    from .text import TextFile


@dataclass(frozen=True, slots=True)
class StageSummary:
    """One trained stage."""

    name: str
    length: int
    steps: int
    rows: int  # of training; the held-out ones are not among them
    held_out_rows: int
    held_out: AcceptanceScores  # of the finished draft or head
    held_out_loss: float


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """A finished run."""

    command: str
    kind: str  # draft, medusa, mlp or eagle
    description: str  # of the dimensions
    options: dict[str, Any]
    target_id: str
    target_sha256: str | None
    target_licence: str | None
    target_parameters: int
    trained_parameters: int
    device: str
    num_processes: int
    versions: dict[str, str]
    date: str
    seconds: dict[str, float]  # by phase, over all calls
    flops: float  # of both training stages
    files: tuple[TextFile, ...]
    self_written_tokens: int  # of the target's answers, 0 without that stage
    stages: tuple[StageSummary, ...]
    stopped_early: tuple[str, ...]
    prompts: tuple[CategoryScores, ...]  # empty without evaluation prompts
    history: tuple[Measurement, ...]

    def to_json(self) -> str:
        """Of training.json."""
        return json.dumps(asdict(self), indent=1, default=str) + "\n"


class PhaseClock:
    """Seconds a phase took over all calls, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the block's time, also when it is left by an error."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
            write_text(self._path, json.dumps(self.seconds))


def plain_options(options: TrainOptions) -> dict[str, Any]:
    """All options as JSON values."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(options), default=str))
    return plain
