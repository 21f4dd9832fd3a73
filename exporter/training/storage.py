"""Writing that never leaves half a file under its final name, and a full disk told apart from other failures."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from .errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOW_SPACE_BYTES = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns the ways in which Python, torch and safetensors report a failed write into StorageError.

    Raises:
        StorageError: the block failed to write.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(_message(path, error, full=error.errno in _FULL)) from error
    except SafetensorError as error:
        raise StorageError(_message(path, error, full="os error 28" in str(error))) from error
    except RuntimeError as error:  # torch's zip writer
        if "PytorchStreamWriter" not in str(error) and "unexpected pos" not in str(error):
            raise
        raise StorageError(_message(path, error, full=_free_bytes(path) < _LOW_SPACE_BYTES)) from error


def write_text(path: Path, text: str) -> None:
    """Writes a file that is either old or new, never half.

    Raises:
        StorageError: the disk is full or not writable.
    """
    with storage_errors(path):
        partial = path.with_name(path.name + ".partial")
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)


def _free_bytes(path: Path) -> int:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    return shutil.disk_usage(existing).free


def _message(path: Path, error: Exception, *, full: bool) -> str:
    if full:
        return f"the disk is full while writing {path}; free some space and run the same command to continue"
    return f"{path} cannot be written: {error}; the last complete checkpoint is untouched"
