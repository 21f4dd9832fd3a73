"""A weights file while it is written, tensor after tensor, with a journal by which an export that was killed goes on.

X.journal beside X.bin has a line about what the file is made of, then one for each tensor that is in it, with its hash.
What the journal says is checked: the first tensor that differs, and all behind it, are written anew.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .contract import TENSOR_ALIGNMENT
from .files import digest_of
from .packing import padded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

Array = np.ndarray[Any, np.dtype[Any]]
JOURNAL = ".journal"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One entry of the manifest's tensor table."""

    name: str
    dtype: str  # "u8" or "f32"
    shape: tuple[int, ...]
    offset: int  # in the weights file, a multiple of contract.TENSOR_ALIGNMENT
    bytes: int


class WeightsFile:
    """A context manager over the file, open for writing."""

    def __init__(self, path: Path, content: str | None) -> None:
        """content: all that decides about its bytes; a journal with another one is not believed. None: no journal."""
        digest = None if content is None else hashlib.sha256(content.encode()).hexdigest()
        journal = path.with_suffix(JOURNAL)
        kept = [] if digest is None else _kept(path, journal, digest)
        self._kept = kept[::-1]
        self.num_kept = len(kept)
        self._file = path.open("r+b" if kept else "wb")
        self._file.truncate(_end(kept[-1][0]) if kept else 0)
        self._file.seek(0, 2)
        self._journal = None if digest is None else journal.open("w", encoding="utf-8")
        self._note(digest)
        for tensor, tensor_digest in kept:
            self._note(asdict(tensor) | {"sha256": tensor_digest})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._journal is not None:
            self._journal.close()

    def add(self, name: str, parts: Iterable[Array]) -> StoredTensor:
        """Appends a tensor, whose parts are not asked for where the file has it."""
        if self._kept:
            tensor, _ = self._kept.pop()
            if tensor.name == name:
                return tensor
            raise ValueError(f"the journal of {self._file.name} has {tensor.name} in place of {name}")
        file = self._file
        file.write(b"\0" * (padded(file.tell(), TENSOR_ALIGNMENT) - file.tell()))
        offset, digest = file.tell(), hashlib.sha256()
        shape: tuple[int, ...] = ()
        dtype = "u8"
        for part in parts:
            data = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
            file.write(data)
            digest.update(data)
            dtype = "f32" if part.dtype == np.float32 else "u8"
            shape = part.shape
        size = file.tell() - offset
        tensor = StoredTensor(name, dtype, shape if dtype == "f32" else (size,), offset, size)
        file.flush()  # before the journal says that it is there
        self._note(asdict(tensor) | {"sha256": digest.hexdigest()})
        return tensor

    def _note(self, entry: object) -> None:
        if self._journal is not None:
            self._journal.write(json.dumps(entry) + "\n")
            self._journal.flush()


def _end(tensor: StoredTensor) -> int:
    return tensor.offset + tensor.bytes


def _kept(path: Path, journal: Path, content_digest: str) -> list[tuple[StoredTensor, str]]:
    """The tensors that the file begins with, as the journal says, and their hashes."""
    kept: list[tuple[StoredTensor, str]] = []
    if not (path.is_file() and journal.is_file()):
        return kept
    lines = journal.read_text(encoding="utf-8", errors="replace").splitlines()
    if lines[:1] != [json.dumps(content_digest)]:
        return kept
    with path.open("rb") as file:
        for line in lines[1:]:
            try:
                entry = json.loads(line)
                digest = str(entry.pop("sha256"))
                tensor = StoredTensor(**entry | {"shape": tuple(entry["shape"])})
                begins_right = tensor.offset == padded(_end(kept[-1][0]) if kept else 0, TENSOR_ALIGNMENT)
                file.seek(tensor.offset)
                if not begins_right or digest_of(file, tensor.bytes) != digest:
                    break
            except (ValueError, TypeError, KeyError, AttributeError):  # the kill came while it was written
                break
            kept.append((tensor, digest))
    return kept
