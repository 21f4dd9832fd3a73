"""What a run must remember to continue exactly: where it is, what it measured, and the checkpoints on disk."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from .errors import ResumeError
from .storage import storage_errors
from .student import trained_state

if TYPE_CHECKING:
    from pathlib import Path

    from accelerate import Accelerator
    from torch import nn

_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True, slots=True)
class Measurement:
    """One point of the curves: a training step, or a held-out evaluation after it."""

    stage: str
    step: int  # of the stage, from 1
    total_step: int  # over both stages, from 1
    seconds: float  # of training until here, over all calls
    loss: float
    sampled: float
    greedy: float
    greedy_length: float  # expected tokens a round of a chain of 4
    learning_rate: float
    held_out: bool


@dataclass(slots=True)
class TrainingState:
    """Progress of a run; saved with every checkpoint by `Accelerator.register_for_checkpointing`."""

    stage_index: int = 0
    step: int = 0  # finished steps of the stage
    total_steps: int = 0
    seconds: float = 0.0
    best_merit: float = -1.0
    evaluations_without_gain: int = 0
    stopped_early: list[str] = field(default_factory=list)
    history: list[Measurement] = field(default_factory=list)

    def state_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The opposite of `state_dict`."""
        for name, value in state.items():
            setattr(self, name, [Measurement(**item) for item in value] if name == "history" else value)


class Checkpoints:
    """Numbered folders; one appears under its final name only when every process has written its part."""

    def __init__(self, folder: Path, accelerator: Accelerator) -> None:
        self._folder, self._accelerator = folder, accelerator

    def save(self, number: int) -> None:
        """Saves all registered objects and drops all but the last two checkpoints.

        Raises:
            StorageError: the disk is full or not writable; the earlier checkpoints are untouched.
        """
        partial = self._folder / "checkpoint.partial"
        with storage_errors(partial):
            if self._accelerator.is_main_process:
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
            self._accelerator.wait_for_everyone()
            self._accelerator.save_state(str(partial), safe_serialization=False)  # safetensors warns of tied weights
            self._accelerator.wait_for_everyone()
            if self._accelerator.is_main_process:
                final = self._folder / f"checkpoint-{number:08d}"
                shutil.rmtree(final, ignore_errors=True)
                partial.rename(final)
                for old in self._finished()[:-_KEPT_CHECKPOINTS]:
                    shutil.rmtree(old)
            self._accelerator.wait_for_everyone()

    def load_last(self) -> bool:
        """Restores the last checkpoint; false if there is none.

        Raises:
            ResumeError: it cannot be read.
        """
        finished = self._finished()
        if not finished:
            return False
        try:
            self._accelerator.load_state(str(finished[-1]))
        except Exception as error:  # whatever torch, pickle and safetensors raise on damaged files
            raise ResumeError(
                f"{finished[-1]} cannot be read ({error}); delete it to continue from the one before"
            ) from error
        return True

    def _finished(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("checkpoint-*") if path.is_dir())


def save_best(state: dict[str, Any], path: Path) -> None:
    """Keeps the weights of the best evaluation so far, of tied ones the first name."""
    partial = path.with_name(path.name + ".partial")
    with storage_errors(path):
        save_file(trained_state(state), partial)
        partial.replace(path)


def load_best(student: nn.Module, path: Path) -> None:
    """Takes the best weights back.

    Raises:
        ResumeError: they are gone.
    """
    if not path.is_file():
        raise ResumeError(f"{path} is gone; delete {path.parent} to train again")
    student.load_state_dict(load_file(path), strict=False)
