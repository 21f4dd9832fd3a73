"""The tensors of a GGUF file under the names and in the row order of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.buffers import Buffers
from pilotfish.exporter.errors import CheckpointError
from pilotfish.exporter.quantise import joined
from pilotfish.exporter.strips import in_strips, row_spans

from .blocks import keeps_integers, unpack_blocks
from .families import FAMILIES
from .file import open_gguf
from .layout import find_places
from .rope import ROPE_TENSORS

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

    from pilotfish.exporter.quantise import Quantised

    from .layout import Place

Array = np.ndarray[Any, np.dtype[Any]]
_ROWS = 4096  # that are compared at a time


class GgufSource:
    """A GGUF file, or all parts of a split one."""

    def __init__(self, path: Path, model: PreTrainedModel) -> None:
        self._path, self._buffers = path, Buffers()
        file = open_gguf(path)
        tensors = {name: tensor for name, tensor in file.tensors.items() if name not in ROPE_TENSORS}
        self._places = find_places(tensors, file.architecture, FAMILIES[file.architecture], model)

    def names(self) -> list[str]:
        """Those of the state dict, and the file's own for tensors that it does not have."""
        return sorted(self._places)

    def stored_name(self, name: str) -> str | None:
        """The same name."""
        return name if name in self._places else None

    def shape(self, stored: str) -> tuple[int, ...]:
        """Rows first, unlike in the file."""
        return self._places[stored].shape

    def equal(self, stored: str, other: str) -> bool:
        """Whether their blocks are the same."""
        mine, theirs = self._places[stored].tensor, self._places[other].tensor
        if (mine.type, mine.shape) != (theirs.type, theirs.shape):
            return False
        return all(np.array_equal(mine.rows(*span), theirs.rows(*span)) for span in row_spans(mine.num_rows, _ROWS))

    def packed_type(self, stored: str) -> None:
        """The gguf package knows the layout of every type that the reader of the header lets through."""

    def _place(self, name: str) -> Place:
        if name not in self._places:
            raise CheckpointError(f"{self._path} has no tensor {name}; is the file complete?")
        return self._places[name]

    def read(self, name: str) -> Array:
        """A tensor, dequantised to f32."""
        return np.ascontiguousarray(self._place(name).values(self._buffers), dtype=np.float32)

    def stored_type(self, name: str) -> str | None:
        """GGUF's name of the type, such as F16 or Q4_1."""
        return self._places[name].tensor.type.name if name in self._places else None

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """The file's integers, if the format holds them, see `blocks`; of a matrix with inputs first, None."""
        place = self._place(name)
        tensor = place.tensor
        if place.transposed or place.offset or not keeps_integers(tensor.type.name, format_name):
            return None
        kind, rows = tensor.type.name, tensor.rows(0, tensor.num_rows)
        order = place.ordered(np.arange(len(rows), dtype=np.int64)[:, None])[:, 0]
        strips = in_strips(
            lambda start, end: unpack_blocks(rows[order[start:end]], kind, format_name), len(rows), tensor.shape[-1]
        )
        return joined(list(strips))
