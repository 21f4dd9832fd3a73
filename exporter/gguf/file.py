"""A GGUF model, which may be split over several files: any of them opens it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from glob import escape
from typing import TYPE_CHECKING, Any

from pilotfish.exporter.errors import CheckpointError

from .parse import GgufTensor, ParsedFile, parse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


@dataclass(frozen=True, slots=True)
class GgufFile:
    """Metadata and tensors of a model, of all its parts."""

    path: Path  # as the user named it
    parts: tuple[Path, ...]  # in order; one, where the file is not split
    fields: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @property
    def architecture(self) -> str:
        """Such as "llama" or "qwen2"."""
        return str(self.field("general.architecture"))

    def field(self, key: str) -> Any:
        """A field of the metadata.

        Raises:
            CheckpointError: there is none of that name.
        """
        if key not in self.fields:
            raise CheckpointError(f"{self.path} has no readable model configuration: its metadata lacks {key}")
        return self.fields[key]


def open_gguf(path: Path) -> GgufFile:
    """Opens a file, or all parts of a split one. Target and draft are kept open as long as nobody writes them anew.

    Raises:
        CheckpointError: not a GGUF file, or a part is missing, or belongs to another model.
        UnsupportedModelError: a tensor is of a type that cannot be read.
    """
    name = _PART.fullmatch(path.name)
    parts = path.parent.glob(f"{escape(name['stem'])}-*-of-*.gguf") if name else [path]
    found = [(part, part.stat()) for part in sorted(parts) if part.is_file()]
    return _opened(path, tuple((part, info.st_size, info.st_mtime_ns) for part, info in found))


@lru_cache(maxsize=2)
def _opened(path: Path, _state: tuple[tuple[Path, int, int], ...]) -> GgufFile:
    first = parse(path)
    count = _number(path, first, _COUNT, 1)
    if count <= 1:
        return GgufFile(path, (path,), first.fields, first.tensors)
    paths = _paths(path, count)
    parts = [parse(part) for part in paths]
    _check_parts(paths, parts)
    fields = {key: value for part in reversed(parts) for key, value in part.fields.items()}
    tensors = {name: tensor for part in parts for name, tensor in part.tensors.items()}
    return GgufFile(path, paths, fields, tensors)


def _paths(path: Path, count: int) -> tuple[Path, ...]:
    name = _PART.fullmatch(path.name)
    if name is None or int(name["count"]) != count:
        raise CheckpointError(
            f"{path} is one of {count} parts of a model; they must be named NAME-00001-of-{count:05}.gguf and so on"
        )
    paths = tuple(path.with_name(f"{name['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1))
    for number, part in enumerate(paths, 1):
        if not part.is_file():
            raise CheckpointError(f"part {number} of {count} is missing: put {part.name} beside {path}")
    return paths


def _check_parts(paths: tuple[Path, ...], parts: list[ParsedFile]) -> None:
    """Whether the files are all parts of one model, each once."""
    count, seen = len(parts), set[str]()
    for number, (path, part) in enumerate(zip(paths, parts, strict=True)):
        found = _number(path, part, _NUMBER, -1) + 1, _number(path, part, _COUNT, 0)
        if found != (number + 1, count):
            raise CheckpointError(
                f"{path} is part {found[0]} of {found[1]}, expected {number + 1} of {count}; download it again"
            )
        twice = seen & part.tensors.keys()
        if twice:
            raise CheckpointError(f"{path} has {min(twice)}, which an earlier part has too: parts of two models")
        seen |= part.tensors.keys()
    expected = _number(paths[0], parts[0], _TENSORS, len(seen))
    if len(seen) != expected:
        raise CheckpointError(f"the parts of {paths[0]} have {len(seen)} tensors, expected {expected}: not one model's")


def _number(path: Path, part: ParsedFile, key: str, default: int) -> int:
    value = part.fields.get(key, default)
    if not isinstance(value, int):
        raise CheckpointError(f"{path} has {key} = {value!r}; it must be a whole number, so download the file again")
    return value
