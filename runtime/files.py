"""Files that users name: read as text, found writable before the work that they are to hold, and replaced whole."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

from pilotfish.bindings import InvalidArgumentError


def read_text(option: str, path: str) -> str:
    """The text of a file that an option names, without a byte-order mark.

    Raises:
        InvalidArgumentError: it cannot be read, or is not UTF-8.
    """
    try:
        content = Path(path).read_bytes()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InvalidArgumentError(f"{option} {path!r} is UTF-16, must be UTF-8: save it so")
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{option} {path!r} is no text: {error}") from error
    except OSError as error:
        raise InvalidArgumentError(f"{option} {path!r} cannot be read: {error.strerror}") from error


def read_lines(option: str, path: str) -> list[str]:
    """The lines of a file that an option names; errors are read_text()'s.

    Only a newline ends one: what str.splitlines() takes for ends, such as U+2028, may stand in a JSON string.
    """
    return read_text(option, path).split("\n")


def why_not_writable(file: str, *, makes_folders: bool = False) -> str | None:
    """What keeps a file, which need not exist, from being written; None if nothing does.

    Args:
        file: its path.
        makes_folders: whether folders above it that do not exist will be made.
    """
    if not file:
        return "it names no file"
    path = Path(file)
    try:
        if path.is_dir():
            return "it is a folder"
    except OSError as error:
        return error.strerror or str(error)
    folder = path.absolute().parent
    while makes_folders and not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    if not os.access(path if path.exists() else folder, os.W_OK):
        return f"{path if path.exists() else folder} may not be written"
    return None


def replace_text(path: Path, text: str) -> None:
    """Writes a whole file. If that fails, for want of room perhaps, what was there before stays.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):  # a pipe, a device, a file alone
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
