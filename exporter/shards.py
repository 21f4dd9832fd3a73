"""The safetensors files of a folder, opened: one file, or the shards that an index names."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from .errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def open_shards(folder: Path) -> dict[str, Any]:
    """The opened file of each tensor; files stay mapped, and tensors are read on demand.

    Raises:
        CheckpointError: no such file, a damaged one, a tensor in two files, or an index that does not fit its files.
    """
    if not (folder / INDEX).is_file():
        if not (folder / SINGLE).is_file():
            raise CheckpointError(f"{folder} has no {SINGLE}; save the model with save_pretrained first")
        opened = _open(folder / SINGLE)
        return dict.fromkeys(opened.keys(), opened)
    named = read_index(folder / INDEX)
    found: dict[str, Any] = {}
    place: dict[str, str] = {}
    for file in sorted(set(named.values())):
        if not (folder / file).is_file():
            raise CheckpointError(f"{folder / file} is missing, which {INDEX} names; is the download complete?")
        opened = _open(folder / file)
        for name in opened.keys():  # noqa: SIM118 - not a dictionary
            if name in place:
                raise CheckpointError(f"{folder}: tensor {name} is in {place[name]} and in {file}")
            found[name], place[name] = opened, file
    for name, file in named.items():
        if place.get(name) != file:
            raise CheckpointError(f"{folder / INDEX} says that tensor {name} is in {file}, which does not have it")
    return found


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


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error}") from error
