"""Where tensors come from: one at a time, as f32. Safetensors files are here, GGUF files in gguf/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from .errors import CheckpointError
from .shards import PLAIN_TYPES, open_shards
from .strips import row_spans

if TYPE_CHECKING:
    from pathlib import Path

    from .quantise import Quantised

Array = np.ndarray[Any, np.dtype[Any]]
_ROWS = 4096  # that are compared at a time


class WeightSource(Protocol):
    """Tensors of a checkpoint under the names of transformers' state dict."""

    def read(self, name: str) -> Array:
        """A tensor as f32.

        Raises:
            CheckpointError: the checkpoint has no such tensor.
        """

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """The stored integers, if `format_name` holds the checkpoint's blocks exactly; else None."""

    def stored_type(self, name: str) -> str | None:
        """Type of a tensor in the checkpoint, such as BF16 or Q4_1; None if there is no such tensor."""


class CheckpointSource(WeightSource, Protocol):
    """All tensors of a checkpoint on disk, by the names that they are stored under."""

    def names(self) -> list[str]:
        """Stored names of all tensors; of those that a model's state dict has, that name where the file's differs."""

    def stored_name(self, name: str) -> str | None:
        """What a tensor of the state dict is stored as; None if the checkpoint has none."""

    def shape(self, stored: str) -> tuple[int, ...]:
        """Shape of a stored tensor."""

    def equal(self, stored: str, other: str) -> bool:
        """Whether two stored tensors hold the same; needs no more memory than some of their rows."""

    def packed_type(self, stored: str) -> str | None:
        """The type of a stored tensor whose values stand for others in a layout that nobody names; else None."""


class SafetensorsSource:
    """A folder with model.safetensors or its sharded form; tensors are read on demand."""

    def __init__(self, folder: Path) -> None:
        self._files = open_shards(folder)
        self._folder = folder
        self._renamed: dict[str, str] = {}

    def rename(self, names: dict[str, str]) -> None:
        """Lets tensors be called otherwise than the file calls them: new name -> the file's."""
        self._renamed = names

    def names(self) -> list[str]:
        """Names of all tensors."""
        return sorted(self._files)

    def read(self, name: str) -> Array:
        """A tensor as f32."""
        stored = self.stored_name(name)
        if stored is None:
            raise CheckpointError(f"{self._folder} has no tensor {name}; is the checkpoint complete?")
        return np.asarray(self._files[stored].read(stored).to(torch.float32).numpy())

    def read_stored(self, name: str) -> Array:
        """A tensor in its own type, where numpy has that; else as f32.

        Raises:
            CheckpointError: there is no such tensor.
        """
        stored = self.stored_name(name)
        if stored is None:
            raise CheckpointError(f"{self._folder} has no tensor {name}; is the checkpoint complete?")
        tensor = self._files[stored].read(stored)
        return np.asarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())

    def shape(self, stored: str) -> tuple[int, ...]:
        """As the file's header says."""
        return self._files[stored].shape(stored)

    def equal(self, stored: str, other: str) -> bool:
        """Compares some rows at a time."""
        shape, pair = self.shape(stored), [(self._files[name], name) for name in (stored, other)]
        if shape != self.shape(other):
            return False
        if not shape:
            return self._same(*(file.read(name) for file, name in pair))
        spans = row_spans(shape[0], _ROWS)
        return all(self._same(*(file.read_rows(name, *span) for file, name in pair)) for span in spans)

    @staticmethod
    def _same(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
        if mine.is_floating_point() and theirs.is_floating_point():
            mine, theirs = mine.float(), theirs.float()
        return mine.dtype == theirs.dtype and torch.equal(mine, theirs)

    def packed_type(self, stored: str) -> str | None:
        """Integers and 8-bit floats are not weights without a scale."""
        kind = self._files[stored].kind(stored)
        return None if kind in PLAIN_TYPES else kind

    def read_blocks(self, name: str, format_name: str) -> None:
        """Safetensors hold no blocks."""

    def stored_type(self, name: str) -> str | None:
        """The type's name in the file's header, such as F16 or BF16."""
        stored = self.stored_name(name)
        return None if stored is None else self._files[stored].kind(stored)

    def stored_name(self, name: str) -> str | None:
        """The leading 'model.' may be missing in the file, as in checkpoints of a bare decoder."""
        spellings = (name, self._renamed.get(name, name), name.removeprefix("model."))
        return next((key for key in spellings if key in self._files), None)
