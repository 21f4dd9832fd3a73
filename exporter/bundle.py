"""Reads and checks a bundle folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pilotfish.runtime.bundle_files import NotABundleFileError, open_bundle_file, read_bundle_file
from pilotfish.runtime.manifest import MOST_MANIFEST_BYTES

from .errors import BundleCorruptError, BundleMissingError
from .files import digest_of, sha256_of
from .manifest import FileEntry, HeadEntry, Manifest, ModelEntry, TokenizerEntry, parse_manifest

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"


def read_manifest(folder: Path) -> Manifest:
    """Reads a bundle's manifest without touching its other files.

    Raises:
        BundleMissingError: no folder, or no manifest in it.
        BundleCorruptError, BundleVersionError: see `parse_manifest`.
    """
    try:
        content = read_bundle_file(folder, MANIFEST, MOST_MANIFEST_BYTES)
    except OSError as error:
        raise BundleMissingError(f"{folder} is not a bundle: it has no {MANIFEST}") from error
    except NotABundleFileError as error:
        raise BundleCorruptError(str(error)) from error
    try:
        return parse_manifest(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BundleCorruptError(f"{folder / MANIFEST} is not UTF-8 text") from error


def check_bundle(folder: Path) -> Manifest:
    """Checks size and hash of every file of a bundle and returns its manifest.

    Raises:
        BundleMissingError: the folder or a file is missing.
        BundleCorruptError: a size or hash differs; the message names the file, the expected and the found value.
        BundleVersionError: another format version.
    """
    manifest = read_manifest(folder)
    entries: list[FileEntry | TokenizerEntry] = [manifest.tokenizer]
    for model in manifest.models.values():
        entries += [model.graph, model.weights]
    head = manifest.head
    if head is not None:
        entries += [*head.graphs.values(), head.weights]
    for entry in entries:
        _check_file(folder, entry)
    parts: list[ModelEntry | HeadEntry] = [*manifest.models.values()]
    if head is not None:
        parts.append(head)
    for part in parts:
        for tensor in part.tensors:
            if tensor.offset + tensor.bytes > part.weights.bytes:
                end, size = tensor.offset + tensor.bytes, part.weights.bytes
                raise BundleCorruptError(f"tensor {tensor.name} ends at byte {end}, {part.weights.file} has {size}")
    if head is not None:
        _check_shared(head, manifest.models["target"])
    return manifest


def _check_shared(head: HeadEntry, target: ModelEntry) -> None:
    own, known = {tensor.name for tensor in head.tensors}, {tensor.name for tensor in target.tensors}
    for name, of in head.shared.items():
        if of not in known or name in own:
            problem = "the head has one itself" if name in own else "which has none of that name"
            raise BundleCorruptError(f"manifest.json takes the head's {name} from the target's {of}, but {problem}")


def file_entry(path: Path) -> FileEntry:
    """The manifest entry of a file that has been written."""
    return FileEntry(path.name, path.stat().st_size, sha256_of(path))


def _check_file(folder: Path, entry: FileEntry | TokenizerEntry) -> None:
    path = folder / entry.file
    try:
        file = os.fdopen(open_bundle_file(folder, entry.file), "rb")
    except OSError as error:
        raise BundleMissingError(f"{path} is missing from the bundle ({error.strerror})") from error
    except NotABundleFileError as error:
        raise BundleCorruptError(str(error)) from error
    with file:
        size = os.fstat(file.fileno()).st_size
        if size != entry.bytes:
            raise BundleCorruptError(f"{path} has {size} bytes, expected {entry.bytes}; it is incomplete or changed")
        found = digest_of(file)
    if found != entry.sha256:
        raise BundleCorruptError(f"{path} has sha256 {found}, expected {entry.sha256}; the file was changed")
