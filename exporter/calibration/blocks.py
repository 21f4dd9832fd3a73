"""Calibrated integers of a model's matrices, kept in a file beside the bundle's until they are packed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.contract import BLOCK_COLUMNS
from pilotfish.exporter.quantise import Quantised

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

Array = np.ndarray[Any, np.dtype[Any]]
_ZERO_POINT = {"int4": 8, "int4_asym": 0}


@dataclass(frozen=True, slots=True)
class _Place:
    offset: int  # in the file
    shape: tuple[int, int]  # of the codes


class CalibratedBlocks:
    """A context manager over the file, which is gone at the end; a parameter may be there in several formats."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[tuple[str, str], _Place] = {}

    def __enter__(self) -> Self:
        self._file = self._path.open("w+b")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._path.unlink()

    def add(self, name: str, format_name: str, found: Quantised) -> None:
        """Keeps a parameter's integers, [out_features, in_features] however the checkpoint has the matrix."""
        self._file.seek(0, 2)
        rows, columns = found.codes.shape
        self._places[name, format_name] = _Place(self._file.tell(), (rows, columns))
        nibbles = (found.codes + _ZERO_POINT[format_name]).astype(np.uint8)
        self._file.write((nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).tobytes())
        for numbers in (found.scale, found.offset):
            if numbers is not None:
                self._file.write(numbers.astype(np.float16).tobytes())

    def clear(self) -> None:
        """Keeps nothing of it."""
        self._places.clear()
        self._file.truncate(0)

    def get(self, name: str, format_name: str) -> Quantised | None:
        """A parameter's integers in a format; None where it has none."""
        place = self._places.get((name, format_name))
        if place is None:
            return None
        rows, columns = place.shape
        self._file.seek(place.offset)
        packed = self._read(np.uint8, rows, columns // 2)
        codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(rows, columns).astype(np.int8)
        blocks = columns // BLOCK_COLUMNS
        numbers = [self._read(np.float16, rows, blocks) for _ in range(1 if format_name == "int4" else 2)]
        return Quantised(codes - np.int8(_ZERO_POINT[format_name]), *numbers)

    def __len__(self) -> int:
        return len(self._places)

    def _read(self, kind: type[Any], rows: int, columns: int) -> Array:
        data = self._file.read(rows * columns * np.dtype(kind).itemsize)
        return np.frombuffer(data, kind).reshape(rows, columns)
