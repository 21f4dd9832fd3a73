"""Where tensors come from: one at a time, as f32, from safetensors files or a GGUF file."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import gguf
import numpy as np
import torch
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from .contract import BLOCK_COLUMNS
from .errors import CheckpointError
from .gguf_header import check_gguf
from .quantise import Quantised
from .shards import open_shards

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from transformers import PreTrainedModel

Array = np.ndarray[Any, np.dtype[Any]]
_LEAST_INT8 = -127
_ROWS = 4096  # that are compared at a time
_BLOCK_TYPES = {  # that a format holds exactly
    "int4": (gguf.GGMLQuantizationType.Q4_0,),
    "int4_asym": (gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q4_0),
    "int8": (gguf.GGMLQuantizationType.Q8_0,),
}


@lru_cache(maxsize=2)
def open_gguf(path: Path) -> gguf.GGUFReader:
    """A mapped GGUF file. Parsing a vocabulary of 50,000 tokens takes seconds, so target and draft are kept open.

    Raises:
        CheckpointError: not a GGUF file.
    """
    check_gguf(path)
    try:
        return gguf.GGUFReader(path)
    except Exception as error:  # whatever numpy raises on a size that cannot be
        raise CheckpointError(f"{path} is not a complete GGUF file: {error}") from error


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


class SafetensorsSource:
    """A folder with model.safetensors or its sharded form; opened files stay mapped, tensors are read on demand."""

    def __init__(self, folder: Path) -> None:
        self._files = open_shards(folder)
        self._folder = folder

    def names(self) -> list[str]:
        """Names of all tensors."""
        return sorted(self._files)

    def read(self, name: str) -> Array:
        """A tensor as f32."""
        stored = self.stored_name(name)
        if stored is None:
            raise CheckpointError(f"{self._folder} has no tensor {name}; is the checkpoint complete?")
        tensor: torch.Tensor = self._files[stored].get_tensor(stored)
        return np.asarray(tensor.to(torch.float32).numpy())

    def shape(self, stored: str) -> tuple[int, ...]:
        """As the file's header says."""
        return tuple(self._files[stored].get_slice(stored).get_shape())

    def equal(self, stored: str, other: str) -> bool:
        """Compares some rows at a time."""
        parts = [self._files[name].get_slice(name) for name in (stored, other)]
        if self.shape(stored) != self.shape(other):
            return False
        starts = range(0, self.shape(stored)[0], _ROWS)
        return all(torch.equal(*(part[start : start + _ROWS].float() for part in parts)) for start in starts)

    def read_blocks(self, name: str, format_name: str) -> None:
        """Safetensors hold no blocks."""

    def stored_type(self, name: str) -> str | None:
        """The type's name in the file's header, such as F16 or BF16."""
        stored = self.stored_name(name)
        return None if stored is None else str(self._files[stored].get_slice(stored).get_dtype())

    def stored_name(self, name: str) -> str | None:
        """The leading 'model.' may be missing in the file, as in checkpoints of a bare decoder."""
        return next((key for key in (name, name.removeprefix("model.")) if key in self._files), None)


class GgufSource:
    """A GGUF file; names and row orders are translated by transformers' own tables."""

    def __init__(self, path: Path, model: PreTrainedModel) -> None:
        self._path = path
        reader = open_gguf(path)
        architecture = reader.fields["general.architecture"].contents()
        make_processor: Callable[..., Any] = TENSOR_PROCESSORS.get(architecture, TensorProcessor)
        self._processor = make_processor(config=model.config.to_dict())
        names = get_gguf_hf_weights_map(model, self._processor)
        self._tensors = {names.get(tensor.name, tensor.name): tensor for tensor in reader.tensors}

    def names(self) -> list[str]:
        """Those of the state dict, and the file's own for tensors that it does not have."""
        return sorted(self._tensors)

    def stored_name(self, name: str) -> str | None:
        """The same name."""
        return name if name in self._tensors else None

    def shape(self, stored: str) -> tuple[int, ...]:
        """Rows first, unlike in the file."""
        return tuple(int(axis) for axis in reversed(self._tensors[stored].shape))

    def equal(self, stored: str, other: str) -> bool:
        """Whether their blocks are the same."""
        mine, theirs = self._tensors[stored], self._tensors[other]
        if (mine.tensor_type, self.shape(stored)) != (theirs.tensor_type, self.shape(other)):
            return False
        starts = range(0, len(mine.data), _ROWS)
        return all(np.array_equal(mine.data[row : row + _ROWS], theirs.data[row : row + _ROWS]) for row in starts)

    def _tensor(self, name: str) -> gguf.gguf_reader.ReaderTensor:
        if name not in self._tensors:
            raise CheckpointError(f"{self._path} has no tensor {name}; is the file complete?")
        return self._tensors[name]

    def _reorder(self, tensor: gguf.gguf_reader.ReaderTensor, rows: Array) -> Array:
        """Undoes the row permutation that GGUF applies to some tensors."""
        result = self._processor.process(rows, name=tensor.name, tensor_key_mapping={}, parsed_parameters={})
        return np.ascontiguousarray(result.weights)

    def read(self, name: str) -> Array:
        """A tensor, dequantised to f32."""
        tensor = self._tensor(name)
        return self._reorder(tensor, gguf.dequantize(tensor.data, tensor.tensor_type)).astype(np.float32, copy=False)

    def stored_type(self, name: str) -> str | None:
        """GGUF's name of the type, such as F16 or Q4_1."""
        return self._tensors[name].tensor_type.name if name in self._tensors else None

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """Takes over Q4_0 as int4 or int4_asym, Q4_1 as int4_asym and Q8_0 as int8, bit for bit."""
        tensor = self._tensor(name)
        kind = tensor.tensor_type
        if kind not in _BLOCK_TYPES.get(format_name, ()):
            return None
        columns, rows = (int(axis) for axis in tensor.shape)
        order = self._reorder(tensor, np.arange(rows, dtype=np.int64)[:, None])[:, 0]
        blocks = np.asarray(tensor.data).reshape(rows, columns // BLOCK_COLUMNS, -1)[order]
        header = 4 if kind == gguf.GGMLQuantizationType.Q4_1 else 2  # bytes: f16 scale, for Q4_1 also f16 offset
        halves = np.ascontiguousarray(blocks[:, :, :header]).view(np.float16)
        data = blocks[:, :, header:]
        if format_name == "int8":
            codes = np.ascontiguousarray(data).view(np.int8)
            if codes.min() < _LEAST_INT8:  # outside the format; requantised instead
                return None
        else:  # low nibbles are columns 0..15
            codes = np.concatenate([data & 15, data >> 4], axis=2).astype(np.int8)
            codes -= 8 if format_name == "int4" else 0
        offset = None
        if format_name == "int4_asym":  # scale * (q - 8) = scale * q + offset, exact: 8 is a power of two
            offset = halves[..., 1] if header == 4 else halves[..., 0] * np.float16(-8)  # noqa: PLR2004 - as above
        return Quantised(codes.reshape(rows, columns), halves[..., 0], offset)
