"""Metadata and tensors of a GGUF file as the gguf package reads them, for the second reading alone."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch

from pilotfish.exporter.buffers import Buffers
from pilotfish.exporter.strips import fill_in_strips

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
_ARRAY, _STRING = gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING
_LIST_HEADER = 12  # bytes of the type and the length of a list


class _Reader(gguf.GGUFReader):
    """With the file as a plain array: slices of a memmap take four times as long, and a vocabulary has many."""

    mapped: mmap.mmap
    _plain: Array

    @property
    def data(self) -> Any:
        """All bytes, u8."""
        return self._plain

    @data.setter
    def data(self, mapped: Any) -> None:
        if not isinstance(mapped.base, mmap.mmap):
            raise TypeError("the gguf package no longer maps its files")
        self.mapped, self._plain = mapped.base, np.asarray(mapped)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
        """Those of a list of texts are its type and length alone: nobody asks for a vocabulary, which takes seconds."""
        order, memory = ">" if self.byte_order == "S" else "<", self._plain.data
        item, count = struct.unpack_from(f"{order}IQ", memory, orig_offs) if raw_type == _ARRAY else (0, 0)
        if item != _STRING:
            found: tuple[int, list[Any], list[int], list[Any]] = super()._get_field_parts(orig_offs, raw_type)
            return found
        length, end = struct.Struct(f"{order}Q"), orig_offs + _LIST_HEADER
        for _ in range(count):
            end += length.size + length.unpack_from(memory, end)[0]
        return end - orig_offs, [self._plain[orig_offs : orig_offs + _LIST_HEADER]], [], [_ARRAY, _STRING]


class ReferenceFile:
    """Of one file, or of all parts of a split one in their order."""

    def __init__(self, parts: Sequence[Path]) -> None:
        readers = [_Reader(part) for part in parts]
        self._mapped = [reader.mapped for reader in readers]
        self._fields = readers[0].fields
        self.architecture = str(self._fields["general.architecture"].contents())
        self._buffers = Buffers()
        self._tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}

    def has(self, name: str) -> bool:
        """Whether there is a tensor of a name."""
        return name in self._tensors

    def values(self, key: str) -> Any:
        """A field of the architecture as it is; None without it."""
        field = self._fields.get(f"{self.architecture}.{key}")
        return None if field is None else field.contents()

    def value(self, key: str, default: Any = None) -> Any:
        """A field of the architecture, the first layer's where there is one a layer."""
        found = self.values(key)
        found = default if found is None else found
        return found[0] if isinstance(found, list) else found

    def read(self, name: str) -> torch.Tensor:
        """A tensor as f32, rows first."""
        tensor = self._tensors[name]
        rows = tensor.data.reshape(-1, tensor.data.shape[-1])
        shape = [int(axis) for axis in reversed(tensor.shape)]
        values = self._dequantised(rows, shape[-1], tensor.tensor_type).reshape(shape)
        for mapped in self._mapped:
            mapped.madvise(mmap.MADV_DONTNEED)  # pages of a mapped file count as this process's memory
        return torch.from_numpy(values)

    def look_up(self, name: str, ids: Sequence[int]) -> torch.Tensor:
        """Some rows of a matrix as f32, in the order of the ids."""
        tensor = self._tensors[name]
        return torch.from_numpy(self._dequantised(tensor.data[list(ids)], int(tensor.shape[0]), tensor.tensor_type))

    def _dequantised(self, rows: Array, width: int, kind: gguf.GGMLQuantizationType) -> Array:
        """Rows of a tensor as they are in the file, as f32 [rows, width]."""
        values = self._buffers.empty((len(rows), width))

        def strip(start: int, end: int) -> None:
            row = rows[start:end].reshape(1, -1)  # one for the package, which works on few rows at a time
            values[start:end] = gguf.dequantize(row, kind).reshape(end - start, width)

        fill_in_strips(strip, *values.shape)
        return values

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """By the matrix of a name, and its bias where there is one."""
        y = x @ self.read(f"{name}.weight").T
        return y + self.read(f"{name}.bias") if self.has(f"{name}.bias") else y

    def normed(self, x: torch.Tensor, name: str, *, is_layer_norm: bool) -> torch.Tensor:
        """A norm over the last axis, by the weight and bias of a name where there are any."""
        key = "attention.layer_norm_epsilon" if is_layer_norm else "attention.layer_norm_rms_epsilon"
        if is_layer_norm:
            x = x - x.mean(-1, keepdim=True)
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + float(self.value(key)))
        x = x * self.read(f"{name}.weight") if self.has(f"{name}.weight") else x
        return x + self.read(f"{name}.bias") if self.has(f"{name}.bias") else x
