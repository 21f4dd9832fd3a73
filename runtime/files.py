"""Files that users name: read as text, found writable before the work that they are to hold, and replaced whole."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BUNDLE_FILES = ("manifest.json", "tokenizer.json", "*.onnx", "*.bin")
"""Patterns of the names in a bundle's folder."""


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


def parse_json(text: str) -> Any:
    """JSON as its standard has it: without NaN and infinities, and with no name twice in an object.

    Raises:
        ValueError: it is none, or nested too deep.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice!r:.40} twice")
    return found


def why_not_writable(file: str, *, makes_folders: bool = False) -> str | None:
    """What keeps a file, which need not exist, from being written; None if nothing does.

    Args:
        file: its path.
        makes_folders: whether folders above it that do not exist will be made.
    """
    if not file:
        return "it names no file"
    try:
        path = Path(file).resolve()  # a link is written through
        return "it is a folder" if path.is_dir() else _why_locked(path, makes_folders=makes_folders)
    except RuntimeError:  # Python before 3.13, of links
        return "its links go in a circle"
    except (OSError, ValueError) as error:  # a name that is too long, or has a null character
        return getattr(error, "strerror", None) or str(error)


def _why_locked(path: Path, *, makes_folders: bool) -> str | None:
    folder = path.parent
    while makes_folders and not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    place = path if path.exists() else folder
    return None if os.access(place, os.W_OK) else f"{place} may not be written"


def is_of_a_bundle(target: str) -> bool:
    """Whether the file that is there belongs to a bundle, which writing would destroy."""
    path = Path(target).resolve()
    patterns = _BUNDLE_FILES if (path.parent / "manifest.json").exists() else ()
    return path.exists() and any(path.match(pattern) for pattern in patterns)


def check_outputs(outputs: Mapping[str, str | None], inputs: Iterable[str | Path] = ()) -> None:
    """Refuses outputs that would overwrite each other, or what is read.

    Args:
        outputs: files by the options that name them; None: not asked for; "-": standard output.
        inputs: files that are read.

    Raises:
        InvalidArgumentError: two are the same file.
    """
    taken = [(f"{str(file)!r}, which is read", Path(file)) for file in inputs]
    for option, file in outputs.items():
        if file is None or file == "-":
            continue
        for name, other in taken:
            if _is_same(Path(file), other):
                raise InvalidArgumentError(f"{option} {file!r} would overwrite {name}: give another file")
        taken.append((f"what {option} writes", Path(file)))


def _is_same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.is_file() and one.samefile(other)  # devices and pipes keep nothing that could be lost
    return one.resolve() == other.resolve()


def replace_text(path: Path, text: str) -> None:
    """Writes a whole file. If that fails, for want of room perhaps, or is interrupted, what was there before stays.

    What UTF-8 has no bytes for, as parts of file names may be, is escaped.

    Raises:
        OSError: it cannot be written.
    """
    replace_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def replace_bytes(path: Path, content: bytes) -> None:
    """The same of bytes.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not (path.is_file() and os.access(path.resolve().parent, os.W_OK)):  # a pipe, a file alone
        path.write_bytes(content)
        return
    target = path.resolve()
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")  # of this process alone, and short
    try:
        with partial.open("xb") as file:
            file.write(content)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
