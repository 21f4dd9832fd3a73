"""Charts of a page as PNG files, drawn by resvg (the extra "report")."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.bindings import InvalidArgumentError, UnsupportedError
from pilotfish.runtime.files import replace_bytes

from .page import LIGHT

if TYPE_CHECKING:
    from .page import Page

_SCALE = 3  # 1680 pixels wide


def check_png(folder: str) -> None:
    """Whether pictures can be drawn, and written into the folder.

    Raises:
        UnsupportedError: resvg is not installed.
        InvalidArgumentError: there is no such folder, or it may not be written.
    """
    if importlib.util.find_spec("resvg_py") is None:
        raise UnsupportedError("--png needs the package resvg-py: pip install 'pilotfish[report]'")
    if not Path(folder).is_dir():
        raise InvalidArgumentError(f"--png {folder!r} is no folder: make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidArgumentError(f"--png {folder!r} may not be written: give another folder")


def write_pngs(page: Page, folder: str) -> list[Path]:
    """Write a file for each chart of a page, on white.

    Raises:
        InvalidArgumentError: one cannot be written.
    """
    import resvg_py  # noqa: PLC0415 - of an extra

    written = []
    for chart in page.charts:
        drawn = resvg_py.svg_to_bytes(svg_string=with_colours(chart.svg), zoom=_SCALE, background=LIGHT["paper"])
        path = Path(folder) / f"{chart.name}.png"
        try:
            replace_bytes(path, bytes(drawn))
        except OSError as error:
            raise InvalidArgumentError(f"--png {str(path)!r} cannot be written: {error.strerror}") from error
        written.append(path)
    return written


def with_colours(svg: str) -> str:
    """The SVG with the light theme's colours in place of the page's variables, for programs that know no CSS."""
    # Whole attributes alone: texts have no quotation marks, and may say anything.
    coloured = re.sub(r'"var\(--(\w+)\)"', lambda match: f'"{LIGHT[match[1]]}"', svg)
    return coloured.replace('"system-ui, sans-serif"', '"sans-serif"')
