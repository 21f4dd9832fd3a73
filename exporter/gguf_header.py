"""Walks the header of a GGUF file, so that no count or length in it leads its reader beyond the file's end.

The library's reader believes them: an array of 2^60 entries keeps it busy until memory ends.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from .errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of a value, by its type
_STRING, _ARRAY = 8, 9
_LEAST_ENTRY = 12  # bytes of a key or a tensor's entry
_MOST_AXES = 4


class _Walk:
    """A place in the file, which never passes its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.place = 0

    def skip(self, count: int) -> None:
        if count > len(self._data) - self.place:
            raise ValueError(f"{count} bytes at {self.place} are beyond its end at {len(self._data)}")
        self.place += count

    def number(self, size: int) -> int:
        start = self.place
        self.skip(size)
        return int.from_bytes(self._data[start : self.place], "little")

    def string(self) -> None:
        self.skip(self.number(8))

    def value(self, kind: int) -> None:
        if kind == _STRING:
            self.string()
        elif kind in _BYTES:
            self.skip(_BYTES[kind])
        elif kind == _ARRAY:
            inner, count = self.number(4), self.number(8)
            if inner in _BYTES:
                self.skip(count * _BYTES[inner])
            elif inner == _STRING:
                for _ in range(self.count(count, 8)):
                    self.string()
            else:
                raise ValueError(f"an array at {self.place} has entries of type {inner}")
        else:
            raise ValueError(f"a value at {self.place} is of type {kind}")

    def count(self, count: int, least: int) -> int:
        """A count of things that have at least so many bytes each."""
        if count * least > len(self._data) - self.place:
            raise ValueError(f"it says that {count} entries follow at {self.place}, beyond its end")
        return count


def check_gguf(path: Path) -> None:
    """Reads every count and length of the header.

    Raises:
        CheckpointError: it is no GGUF file, or one of them leads beyond its end.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _walk(data)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a complete GGUF file: {error}") from error


def _walk(data: mmap.mmap) -> None:
    walk = _Walk(data)
    walk.skip(len(_MAGIC))
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"it begins with {bytes(data[: len(_MAGIC)])!r}")
    version = walk.number(4)
    if version not in _VERSIONS:
        raise ValueError(
            f"its version is {version}; {' and '.join(map(str, _VERSIONS))} in little-endian order are read"
        )
    num_tensors = walk.count(walk.number(8), _LEAST_ENTRY)
    num_values = walk.count(walk.number(8), _LEAST_ENTRY)
    for _ in range(num_values):
        walk.string()
        walk.value(walk.number(4))
    for _ in range(num_tensors):
        walk.string()
        axes = walk.number(4)
        if axes > _MOST_AXES:
            raise ValueError(f"a tensor before {walk.place} has {axes} axes")
        walk.skip(8 * axes + 4 + 8)
