"""Forward passes of target and student over rows, and sums over passes and processes. Knows nothing about steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from .acceptance import AcceptanceCounts
from .kept_states import KeptStates

if TYPE_CHECKING:
    from accelerate import Accelerator

    from .losses import Distance
    from .options import Stage
    from .rows import Batch, Split, TokenRows
    from .student import Student
    from .target import Seen, Target

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class StageData:
    """A stage with its rows."""

    name: str  # "text" or "self_text"
    stage: Stage
    rows: TokenRows
    split: Split


class Passes:
    """Runs both models on this process's share of some rows."""

    def __init__(
        self, accelerator: Accelerator, target: Target, module: nn.Module, student: Student, kept_bytes: float
    ) -> None:
        """`module` is the student as the accelerator wrapped it; the target's states may take `kept_bytes`."""
        self._accelerator, self._target, self._module, self._student = accelerator, target, module, student
        self._head, self._kept_bytes = target.head, kept_bytes
        self._kept: KeptStates | None = None  # of the stage's rows that are read now

    def new_counts(self) -> AcceptanceCounts:
        """Counts on this process's device."""
        return AcceptanceCounts(self._accelerator.device)

    def share(self, data: StageData, row_ids: Array, passes: int) -> list[Batch]:
        """This process's part of the rows of one optimizer step, in `passes` batches."""
        world, rank = self._accelerator.num_processes, self._accelerator.process_index
        parts = row_ids.reshape(passes, world, -1)[:, rank]
        return [self._student.usable(data.rows.batch(part, self._accelerator.device)) for part in parts]

    def forward(self, data: StageData, batch: Batch) -> Distance:
        """Distances at the scored positions of a batch of a stage's rows."""
        with self._accelerator.autocast():  # also of a module that the accelerator has not wrapped
            distance: Distance = self._module(batch, self._look(data, batch), self._head)
        return distance

    def _look(self, data: StageData, batch: Batch) -> Seen:
        if not self._kept_bytes:
            return self._target.look(batch.token_ids, batch.position_ids, self._student.taps)
        if self._kept is None or self._kept.rows is not data.rows:
            self._kept = None  # before there is another one
            self._kept = KeptStates(self._target, self._student.taps, data.rows, self._kept_bytes)
        return self._kept.look(batch)

    @torch.no_grad()
    def held_out(self, data: StageData, rows_per_pass: int) -> AcceptanceCounts:
        """Counts over the stage's held-out rows; processes run equally many passes, the last perhaps on repeats."""
        counts = self.new_counts()
        unit = rows_per_pass * self._accelerator.num_processes
        row_ids = data.split.held_out
        padded = np.resize(row_ids, -(-len(row_ids) // unit) * unit)  # repeats from the start
        passes = len(padded) // unit
        real = np.arange(len(padded)) < len(row_ids)
        flags = real.reshape(passes, self._accelerator.num_processes, -1)[:, self._accelerator.process_index]
        self._module.eval()
        for batch, flag in zip(self.share(data, padded, passes), flags, strict=True):
            is_real = torch.from_numpy(flag).to(batch.scored.device)
            used = batch._replace(scored=batch.scored & is_real[:, None])
            counts.add(used.scored, self.forward(data, used))
        counts.vector = self.sum(counts.vector)
        return counts

    def sum(self, values: Tensor) -> Tensor:
        """Adds up over all processes."""
        total: Tensor = self._accelerator.reduce(values, reduction="sum")
        return total
