"""Pages and pictures of reports: where they are written, found out before the work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.files import check_outputs, is_of_a_bundle, replace_text, why_not_writable
from pilotfish.runtime.report.png import check_png, write_pngs

from .console import note, write_json

if TYPE_CHECKING:
    from pilotfish.runtime.report.page import Page


def _check_html(target: str | None) -> str | None:
    if target == "-":
        raise InvalidArgumentError("--html '-' names no file: standard output has the tables")
    if target is not None and (reason := why_not_writable(target)):
        raise InvalidArgumentError(f"--html {target!r} cannot be written: {reason}")
    if target is not None and is_of_a_bundle(target):
        raise InvalidArgumentError(f"--html {target!r} would overwrite a file of a bundle: give another name")
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

    def check(self, json_file: str | None, inputs: Iterable[str | Path]) -> None:
        """Raise what writing would, before the work; ``inputs`` are read, and must stay."""
        check_outputs({"--html": self.html, "--json": json_file}, inputs)
        if self.png is not None:
            check_png(self.png)

    def deliver(
        self, make: Callable[[], Page], json_file: str | None, content: dict[str, Any], show: Callable[[], None]
    ) -> None:
        """Write what was asked for, then show the results. Each is done also where another one fails.

        Raises:
            InvalidArgumentError: a file cannot be written.
        """
        with contextlib.ExitStack() as rest:  # what comes last here is done first
            if json_file == "-":  # the last line
                rest.callback(write_json, json_file, content)
            rest.callback(show)
            rest.callback(self._write, make)
            if json_file != "-":
                rest.callback(write_json, json_file, content)

    def _write(self, make: Callable[[], Page]) -> None:
        """Write page and pictures.

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
