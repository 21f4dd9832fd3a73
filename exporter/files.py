"""Hashing and the all-or-nothing output folder."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .errors import OptionError, OutputExistsError, OutputFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_BYTES = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT}


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: BinaryIO) -> str:
    """Hex digest of what is left of a file."""
    digest = hashlib.sha256()
    while piece := file.read(_READ_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def check_output(out: Path, *, overwrite: bool) -> None:
    """Refuses an output that exists, or that cannot be made.

    Raises:
        OutputExistsError: `out` exists and `overwrite` is false, or it is a file, or not a bundle.
        OptionError: no folder can be made there.
    """
    try:
        exists = out.exists()
    except OSError as error:
        raise OptionError(f"{str(out)[:80]}... cannot be made: {error.strerror}") from error
    if not exists:
        above = next(folder for folder in out.absolute().parents if folder.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise OptionError(f"{out} cannot be made: {above} is not a folder that may be written to")
        return
    if not overwrite:
        raise OutputExistsError(f"{out} exists; choose another folder, or replace it: --overwrite, overwrite=True")
    if not out.is_dir() or (any(out.iterdir()) and not (out / "manifest.json").is_file()):
        raise OutputExistsError(f"{out} exists and is not a bundle; it is not overwritten")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary sibling of `out` that takes its place when the block succeeds and vanishes when it fails.

    Whatever ends it, `out` is as it was or as the block made it. Where it is a link, the folder behind it is replaced.

    Raises:
        OptionError: no folder can be made there.
        OutputFullError: there is no room for what the block writes.
    """
    out = out.resolve()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    except OSError as error:
        raise OptionError(f"{out} cannot be made: {error.strerror}") from error
    try:
        yield temporary
        temporary.chmod(0o755)
        _take_place(temporary, out)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _FULL:
            raise OutputFullError(f"the disk is full while writing {out}; free some space and export again") from error
        raise


def _take_place(folder: Path, out: Path) -> None:
    if not out.exists():
        folder.rename(out)
        return
    old = folder.with_suffix(".old")
    out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old)
