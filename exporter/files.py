"""Hashing of files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

_READ_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: BinaryIO, size: int | None = None) -> str:
    """Hex digest of what is left of a file, or of its next ``size`` bytes."""
    digest = hashlib.sha256()
    while piece := file.read(_READ_BYTES if size is None else min(size, _READ_BYTES)):
        digest.update(piece)
        size = None if size is None else size - len(piece)
    return digest.hexdigest()
