"""Runs the ``pilotfish`` command in this process."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.runtime.cli import main

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command left behind."""

    exit_code: int
    out: str
    err: str


class CommandLine:
    """Calls main() with arguments and captures both streams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: object, stdin: str | bytes = "") -> Finished:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "argv", ["pilotfish", *map(str, arguments)])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        self._capsys.readouterr()
        exit_code = 0
        try:
            main()
        except SystemExit as stop:
            exit_code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        return Finished(exit_code, captured.out, captured.err)
