"""States of the target in its device's memory: training reads a row once an epoch, the target looks at it once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .target import Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from .rows import Batch, TokenRows
    from .target import Target

Array = np.ndarray[Any, np.dtype[Any]]


class KeptStates:
    """Looks at rows for a student; keeps as many as fit a number of bytes, the others are looked at every time."""

    def __init__(self, target: Target, taps: Sequence[int], rows: TokenRows, num_bytes: float) -> None:
        self.rows = rows
        self._target, self._taps, self._num_bytes = target, tuple(taps), num_bytes
        self._place = np.full(len(rows), -1)  # of a kept row in the memory
        self._memory: Tensor | None = None  # [rows, last state and taps, length, hidden]
        self._used = 0

    def look(self, batch: Batch) -> Seen:
        """What the target makes of a batch of these rows."""
        assert batch.row_ids is not None  # noqa: S101
        places = self._place[batch.row_ids]
        missing = np.flatnonzero(places < 0)
        kept = np.flatnonzero(places >= 0)
        found = self._looked_at(batch, missing) if len(missing) else None
        if self._memory is None or not len(kept):
            assert found is not None  # noqa: S101
            states = found
        else:
            states = self._memory.new_empty(len(places), *self._memory.shape[1:])
            states[kept] = self._memory[places[kept]]
            if found is not None:
                states[missing] = found
        hidden, *streams = states.unbind(1)
        return Seen(hidden, self._target.embed(batch.token_ids), tuple(streams))

    def _looked_at(self, batch: Batch, which: Array) -> Tensor:
        """Of some rows of a batch, [rows, last state and taps, length, hidden]; keeps what there is room for."""
        assert batch.row_ids is not None  # noqa: S101
        positions = None if batch.position_ids is None else batch.position_ids[which]
        seen = self._target.look(batch.token_ids[which], positions, self._taps)
        states = torch.stack([seen.hidden, *seen.streams], dim=1)
        if self._memory is None:
            room = int(self._num_bytes // (states[0].numel() * states.element_size()))
            self._memory = states.new_empty(min(room, len(self.rows)), *states.shape[1:])
        count = min(len(states), len(self._memory) - self._used)
        self._memory[self._used : self._used + count] = states[:count]
        self._place[batch.row_ids[which[:count]]] = np.arange(self._used, self._used + count)
        self._used += count
        return states
