"""Which libraries a shared library needs: the one thing that is read of an ELF file (System V ABI, chapter 5)."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOAD, _DYNAMIC = 1, 2  # types of segments
_END, _NEEDED, _STRINGS = 0, 1, 5  # tags of the dynamic section
_HEADER = struct.Struct("<16xHHIQQQIHHH")  # up to the number of segments
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")


def needed_libraries(library: Path) -> tuple[str, ...]:
    """Names of the libraries that a 64-bit little-endian one is linked against, in its order.

    Raises:
        ValueError: the file is no such library.
        OSError: it cannot be read.
    """
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{library} is no 64-bit little-endian ELF file")
        segments = list(_segments(data))
        dynamic = next(start for kind, start, _, _ in segments if kind == _DYNAMIC)
        entries = list(_entries(data, dynamic))
        address = next(value for tag, value in entries if tag == _STRINGS)
        strings = next(
            start + address - at for kind, start, at, size in segments if kind == _LOAD and at <= address < at + size
        )
        return tuple(_text(data, strings + value) for tag, value in entries if tag == _NEEDED)


def _segments(data: mmap.mmap) -> Iterator[tuple[int, int, int, int]]:
    """Type, place in the file, address and size of every segment."""
    *_, table, _, _, _, size, count = _HEADER.unpack_from(data)
    for index in range(count):
        kind, _, start, address, _, num_bytes, _, _ = _SEGMENT.unpack_from(data, table + index * size)
        yield kind, start, address, num_bytes


def _entries(data: mmap.mmap, start: int) -> Iterator[tuple[int, int]]:
    """The dynamic section's tags and values."""
    while True:
        tag, value = _ENTRY.unpack_from(data, start)
        if tag == _END:
            return
        yield tag, value
        start += _ENTRY.size


def _text(data: mmap.mmap, start: int) -> str:
    return data[start : data.find(b"\0", start)].decode()
