"""The header of one GGUF file: its metadata, and where each tensor lies. Knows nothing of models."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from pilotfish.exporter.buffers import Buffers
from pilotfish.exporter.errors import CheckpointError, ExportError, UnsupportedModelError, in_one_line
from pilotfish.exporter.strips import fill_in_strips

from .blocks import fill_values

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
_VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # by type id
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32  # bytes
_MOST_DIMENSIONS = 4
_DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, struct.error)  # by what cannot be


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor of a file, whose bytes stay on disk."""

    name: str
    type: gguf.GGMLQuantizationType
    shape: tuple[int, ...]  # rows first, columns last
    path: Path
    offset: int  # in bytes

    @property
    def num_rows(self) -> int:
        """Of all axes but the last."""
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        """Of one row in the file."""
        block_columns, block_bytes = gguf.GGML_QUANT_SIZES[self.type]
        return self.shape[-1] // block_columns * block_bytes

    def rows(self, start: int, end: int) -> Array:
        """Some rows as they are in the file, u8 [rows, bytes of a row]."""
        size = self.row_bytes
        found = np.fromfile(self.path, np.uint8, (end - start) * size, offset=self.offset + start * size)
        return found.reshape(end - start, size)

    def values(self, buffers: Buffers | None = None) -> Array:
        """The tensor as f32 in its shape, in memory of its own or of the buffers."""
        found = (buffers or Buffers()).empty((self.num_rows, self.shape[-1]))

        def strip(start: int, end: int) -> None:
            fill_values(self.rows(start, end), self.type, found[start:end])

        fill_in_strips(strip, *found.shape)
        return found.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """Metadata and tensors of one file."""

    fields: dict[str, Any]
    tensors: dict[str, GgufTensor]


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0

    def take(self, format_text: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + format_text, self._data, self.position)
        self.position += struct.calcsize("<" + format_text)
        return values

    def text(self) -> str:
        (length,) = self.take("Q")
        end = self.position + length
        if end > len(self._data):
            raise struct.error("a text ends behind the file's end")
        found = bytes(self._data[self.position : end]).decode("utf-8", errors="surrogateescape")
        self.position = end
        return found

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.take(_SCALARS[kind])[0]
        item, count = self.take("IQ")
        if item in _SCALARS:
            return list(self.take(f"{count}{_SCALARS[item]}"))
        return [self.value(item) for _ in range(count)]


def parse(path: Path) -> ParsedFile:
    """Reads a file's header.

    Raises:
        CheckpointError: not a GGUF file, or one that ends early.
        UnsupportedModelError: a tensor is of a type that cannot be read.
    """
    try:
        mapped = np.memmap(path, mode="r", dtype=np.uint8)
        return _parse(path, mapped)
    except ExportError:
        raise
    except (*_DAMAGED, OSError, MemoryError) as error:
        raise CheckpointError(f"{path} is not a complete GGUF file: {in_one_line(error)}") from error


def _parse(path: Path, mapped: Array) -> ParsedFile:
    cursor = _Cursor(mapped.data)
    magic, version, num_tensors, num_fields = cursor.take("4sIQQ")
    if magic != b"GGUF" or version not in _VERSIONS:
        raise ValueError(f"it begins with {magic!r}, version {version}; known are b'GGUF', versions 2 and 3")
    fields = {}
    for _ in range(num_fields):
        key = cursor.text()
        (kind,) = cursor.take("I")
        fields[key] = cursor.value(kind)
    entries = [_entry(cursor) for _ in range(num_tensors)]
    alignment = int(fields.get("general.alignment", _DEFAULT_ALIGNMENT))
    start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind, offset in entries:
        if name in tensors:
            raise CheckpointError(f"{path} has the tensor {name} twice; download it again")
        tensors[name] = _tensor(path, mapped.size, (name, shape, kind), start + offset)
    return ParsedFile(fields, tensors)


def _entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type and offset of a tensor."""
    name = cursor.text()
    (num_dimensions,) = cursor.take("I")
    if not 1 <= num_dimensions <= _MOST_DIMENSIONS:
        raise ValueError(f"{name} has {num_dimensions} dimensions")
    shape = tuple(reversed(cursor.take(f"{num_dimensions}Q")))
    kind, offset = cursor.take("IQ")
    return name, shape, kind, offset


def _tensor(path: Path, file_bytes: int, what: tuple[str, tuple[int, ...], int], start: int) -> GgufTensor:
    name, shape, kind = what
    known = _readable(kind)
    if known is None:
        called = next((item.name for item in gguf.GGMLQuantizationType if item == kind), str(kind))
        raise UnsupportedModelError(
            f"{path} stores {name} in type {called}, which the gguf package cannot read; take a file of another kind, "
            "such as Q4_K_M"
        )
    block_columns, block_bytes = gguf.GGML_QUANT_SIZES[known]
    if shape[-1] % block_columns:
        raise CheckpointError(f"{path} stores {name} as {known.name}, whose blocks have {block_columns} columns")
    end = start + math.prod(shape) // block_columns * block_bytes
    if end > file_bytes:
        raise CheckpointError(
            f"{path} is not a complete GGUF file: {name} ends at byte {end}, the file has {file_bytes}; "
            "download it again"
        )
    return GgufTensor(name, known, shape, path, start)


@cache
def _readable(kind: int) -> gguf.GGMLQuantizationType | None:
    """The type of a number, if the gguf package can make floats of its blocks."""
    try:
        known = gguf.GGMLQuantizationType(kind)
        gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[known][1]), np.uint8), known)
    except (ValueError, KeyError, NotImplementedError):
        return None
    return known
