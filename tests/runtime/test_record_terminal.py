"""samples/record_terminal.py: what a command writes appears whole, wherever its pieces end."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def test_a_piece_that_ends_within_a_character_is_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pty")
    monkeypatch.syspath_prepend(SAMPLES)
    recorder = importlib.import_module("record_terminal")
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\n"
        r'for part in (b"\xc3", b"\xa9t", b"\xc3", b"\xa9\nend\n"):' + "\n"
        "    os.write(1, part)\n"
        "    time.sleep(0.2)\n"
    )
    shown = "".join(text for _, text in recorder.record(f"{sys.executable} {program}", 80))
    assert shown.replace("\r", "") == "été\nend\n"
    pieces = [recorder.Piece(0.0, part) for part in ("one\r", "\ntwo\r\n")]
    assert [(text, line) for _, text, line, _ in recorder._placed(pieces, 80)] == [("one", 0), ("two", 1)]
