"""The two output channels, and numbers as JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pilotfish.bindings import Device, InvalidArgumentError
from pilotfish.runtime.devices import parse_device
from pilotfish.runtime.files import is_of_a_bundle, replace_text, why_not_writable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


EXIT_CHECK_FAILED = 3  # 1 is a fault of pilotfish, 2 bad input
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Wide enough for every table, where no terminal limits the width.
_FILE_WIDTH = 160


def out() -> Console:
    """Standard output: results only."""
    return _console(sys.stdout)


def notes() -> Console:
    """Standard error: notes, progress and errors."""
    return _console(sys.stderr)


def show(line: str) -> None:
    """One line of results, as it is, but for what terminals obey."""
    out().print(printable(line), markup=False, soft_wrap=True)


def note(line: str) -> None:
    """One line for the person at the terminal, as it is, but for what terminals obey."""
    notes().print(printable(line), markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """The text with escapes for control characters, which names of files may have, and what UTF-8 has no bytes for."""
    escaped = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return escaped.encode(errors="backslashreplace").decode()


def note_device(device: str) -> None:
    """What opening a bundle on a GPU begins with: bundles are packed for no device in particular."""
    if parse_device(device).kind is not Device.CPU:
        note(f"repacking the weights for {device} while the bundle loads")


def table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, align: Literal["left", "right"] = "right"
) -> Table:
    """A table whose first column is text and whose others are numbers, or facts for which align is "left"."""
    # Text is shown as it is: paths and pip's extras look like markup.
    result = Table(title=Text(printable(title), style="table.title"), title_justify="left")
    for index, name in enumerate(header):
        result.add_column(Text(printable(name)), justify="left" if index == 0 else align, overflow="fold")
    for row in rows:
        result.add_row(*(Text(printable(cell)) for cell in row))
    return result


def read_stdin() -> str:
    """All of standard input.

    Raises:
        InvalidArgumentError: it is not UTF-8.
    """
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"standard input is no text: {error}") from error


def stdin_lines() -> Iterator[str]:
    """The lines of standard input, as they come, without their ends; InvalidArgumentError as read_stdin()'s."""
    try:
        for line in sys.stdin:
            yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"standard input is no text: {error}") from error


def check_json(target: str | None) -> str | None:
    """The target of write_json(), if it can be written: that shows before the work, not after it.

    Raises:
        InvalidArgumentError: it cannot.
    """
    if target is None or target == "-":
        return target
    if reason := why_not_writable(target):
        raise InvalidArgumentError(f"--json {target!r} cannot be written: {reason}")
    if is_of_a_bundle(target):
        raise InvalidArgumentError(f"--json {target!r} would overwrite a file of a bundle: give another name")
    return target


def write_json(target: str | None, content: dict[str, Any]) -> None:
    """Write ``content`` to a file, or as the last line of stdout for "-"; None writes nothing."""
    if target is None:
        return
    if target == "-":
        sys.stdout.write(json.dumps(content) + "\n")
        return
    try:
        replace_text(Path(target), json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise InvalidArgumentError(f"--json {target!r} cannot be written: {error.strerror}") from error


def _console(file: TextIO) -> Console:
    return Console(file=file, highlight=False, width=None if file.isatty() else _FILE_WIDTH)
