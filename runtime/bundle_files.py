"""Opens the files of a bundle folder, whose names and links may be anybody's. The native loader has the same rule.

A file of a bundle is a regular file in its folder. It may be a link to a file beside it or, where the folder is below
``snapshots`` of a hub's cache, in the folder ``blobs`` beside ``snapshots``; other links, pipes, sockets and devices
are refused before they are opened.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from pilotfish.bindings.operating_system import is_file_name, open_file_itself

if TYPE_CHECKING:
    from pathlib import Path

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class NotABundleFileError(ValueError):
    """What is there is no file of the bundle; the message says why."""


def open_bundle_file(folder: Path, name: str) -> int:
    """A descriptor of a file that may be read.

    Raises:
        NotABundleFileError: the name is a path, or no regular file of the bundle is there.
        OSError: it does not exist, or may not be read.
    """
    if not is_file_name(name):
        raise NotABundleFileError(f"{name!r} is not the name of a file in {folder}")
    path = folder / name
    target = path
    if stat.S_ISLNK(os.lstat(path).st_mode):
        target = path.resolve(strict=True)
        if target.parent not in _linked_folders(folder.resolve()):
            raise NotABundleFileError(
                f"{path} is a link to {target}; a bundle's files may link to files beside them and to the blobs of the "
                "hub cache that they are in"
            )
    _require_regular(path, os.lstat(target))
    descriptor = open_file_itself(target)
    try:
        _require_regular(path, os.fstat(descriptor))  # what took its place meanwhile
    except NotABundleFileError:
        os.close(descriptor)
        raise
    return descriptor


def read_bundle_file(folder: Path, name: str, most_bytes: int) -> bytes:
    """The content of a file.

    Raises:
        NotABundleFileError: see `open_bundle_file`; or it has more than ``most_bytes``.
        OSError: it does not exist, or cannot be read.
    """
    with os.fdopen(open_bundle_file(folder, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise NotABundleFileError(f"{folder / name} has {size} bytes, at most {most_bytes} are allowed")
        return file.read(most_bytes)


def _linked_folders(folder: Path) -> tuple[Path, ...]:
    """Where links may lead; ``folder`` is without links itself."""
    below = next((at for at in (folder, *folder.parents) if at.name == "snapshots"), None)
    return (folder,) if below is None else (folder, below.parent / "blobs")


def _require_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise NotABundleFileError(f"{path} is {kind}, not a file")
