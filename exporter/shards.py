"""The safetensors files of a folder, opened: one file, or the shards that an index names."""

from __future__ import annotations

import json
import math
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from .errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PLAIN_TYPES = frozenset(("F64", "F32", "F16", "BF16"))  # whose values stand for themselves
_LENGTH_BYTES = 8  # of the header's length, which a file begins with
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def open_shards(folder: Path) -> dict[str, ShardFile]:
    """The file of each tensor; tensors are read on demand.

    Raises:
        CheckpointError: no such file, a damaged one, a tensor in two files, or an index that does not fit its files.
    """
    if not (folder / INDEX).is_file():
        if not (folder / SINGLE).is_file():
            raise CheckpointError(f"{folder} has no {SINGLE}; save the model with save_pretrained first")
        opened = ShardFile(folder / SINGLE)
        return dict.fromkeys(opened.names(), opened)
    named = read_index(folder / INDEX)
    found: dict[str, ShardFile] = {}
    place: dict[str, str] = {}
    for file in sorted(set(named.values())):
        if not (folder / file).is_file():
            raise CheckpointError(f"{folder / file} is missing, which {INDEX} names; is the download complete?")
        opened = ShardFile(folder / file)
        for name in opened.names():
            if name in place:
                raise CheckpointError(f"{folder}: tensor {name} is in {place[name]} and in {file}")
            found[name], place[name] = opened, file
    for name, file in named.items():
        if place.get(name) != file:
            raise CheckpointError(f"{folder / INDEX} says that tensor {name} is in {file}, which does not have it")
    return found


class ShardFile:
    """One safetensors file, whose tensors are read from it and not mapped: mapped pages count as a process's memory."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError for a damaged file."""
        self._path = path
        try:
            self._checked: Any = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} cannot be read as safetensors: {error}") from error
        # Open as long as its tensors are wanted: a file of that name may take its place meanwhile.
        self._file = path.open("rb")
        header_bytes = int.from_bytes(self._file.read(_LENGTH_BYTES), "little")
        self._entries = json.loads(self._file.read(header_bytes))
        self._start = _LENGTH_BYTES + header_bytes

    def names(self) -> list[str]:
        """Of all tensors."""
        return list(self._checked.keys())

    def kind(self, name: str) -> str:
        """The type's name, such as BF16."""
        return str(self._entries[name]["dtype"])

    def shape(self, name: str) -> tuple[int, ...]:
        """As the header says."""
        return tuple(self._entries[name]["shape"])

    def read(self, name: str) -> torch.Tensor:
        """A tensor in its own type."""
        shape = self.shape(name)
        return self._read(name, 0, math.prod(shape)).reshape(shape)

    def read_rows(self, name: str, start: int, end: int) -> torch.Tensor:
        """Some rows of it, by its first axis."""
        shape = self.shape(name)
        size = math.prod(shape[1:])
        return self._read(name, start * size, end * size).reshape(end - start, *shape[1:])

    def _read(self, name: str, start: int, end: int) -> torch.Tensor:
        """Elements as they follow each other."""
        kind = _TYPES.get(self.kind(name))
        if kind is None:  # which numpy could not hold
            found: torch.Tensor = self._checked.get_tensor(name)
            return found.reshape(-1)[start:end]
        if start == end:
            return torch.empty(0, dtype=kind)
        place = self._start + self._entries[name]["data_offsets"][0] + start * kind.itemsize
        data = np.empty((end - start) * kind.itemsize, np.uint8)
        num_read = 0
        while num_read < data.size:  # the system gives 2 GiB at a time
            more = os.preadv(self._file.fileno(), [data.data[num_read:]], place + num_read)
            if more == 0:
                raise CheckpointError(
                    f"{self._path} is shorter than it was when the export began: tensor {name} is cut off"
                )
            num_read += more
        return torch.from_numpy(data).view(kind)


def read_index(path: Path) -> dict[str, str]:
    """The file of each tensor, all in the index's own folder.

    Raises:
        CheckpointError: it cannot be read, or names something else.
    """
    try:
        named = {str(name): str(file) for name, file in json.loads(path.read_bytes())["weight_map"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} names no files of tensors: {error!r}") from error
    for file in set(named.values()):
        if PurePath(file).name != file:
            raise CheckpointError(f"{path} names the file {file!r}, which is not in its folder")
    if not named:
        raise CheckpointError(f"{path} names no files of tensors: its weight_map is empty")
    return named
