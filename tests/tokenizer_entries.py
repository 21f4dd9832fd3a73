"""Manifests of tokenizers that tests write, without models."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pilotfish.runtime.manifest import Manifest, TokenizerEntry

if TYPE_CHECKING:
    from pathlib import Path


def manifest_of(folder: Path, size: int, bos_id: int | None, eos_ids: tuple[int, ...], *, add_bos: bool) -> Manifest:
    """Of the folder's tokenizer.json, if it has one."""
    path = folder / "tokenizer.json"
    content = path.read_bytes() if path.is_file() else b""
    digest = hashlib.sha256(content).hexdigest()
    entry = TokenizerEntry(path.name, size, bos_id, eos_ids, None, add_bos, len(content), digest)
    return Manifest(folder, {}, entry, None, ())
