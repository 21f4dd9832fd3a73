"""Pages and pictures of reports: where they are written, found out before the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.files import replace_text, why_not_writable
from pilotfish.runtime.report.png import check_png, write_pngs

from .console import note

if TYPE_CHECKING:
    from pilotfish.runtime.report.page import Page


def _check_html(target: str | None) -> str | None:
    if target is not None and (reason := why_not_writable(target)):
        raise InvalidArgumentError(f"--html {target!r} cannot be written: {reason}")
    return target


Html = Annotated[
    str | None,
    typer.Option(
        "--html", metavar="FILE", help="Write a page with charts, which needs no network.", callback=_check_html
    ),
]
Png = Annotated[
    str | None,
    typer.Option("--png", metavar="FOLDER", help="Write the charts as pictures into this folder; extra: report."),
]


@dataclass(frozen=True)
class PageFlags:
    """What is written beside tables and JSON."""

    html: Html = None
    png: Png = None

    def check(self) -> None:
        """Raise what writing pictures would, before the work."""
        if self.png is not None:
            check_png(self.png)

    def write(self, make: Callable[[], Page]) -> None:
        """Write what was asked for.

        Raises:
            InvalidArgumentError: it cannot be written.
        """
        if self.html is None and self.png is None:
            return
        page = make()
        if self.html is not None:
            try:
                replace_text(Path(self.html), page.html())
            except OSError as error:
                raise InvalidArgumentError(f"--html {self.html!r} cannot be written: {error.strerror}") from error
            note(f"wrote {self.html}")
        if self.png is not None:
            for name in write_pngs(page, self.png):
                note(f"wrote {name}")
