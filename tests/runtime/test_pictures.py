"""The pictures of the documents: what draws them, and that they are of now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
from draw_architecture import PICTURE, ROWS, drawing

ROOT = Path(__file__).resolve().parents[2]
RECORDER = ROOT / "samples" / "record_terminal.py"
TEXT = "{http://www.w3.org/2000/svg}text"
NO_BREAK = "\N{NO-BREAK SPACE}"
MOST_BYTES = 60_000
COLUMN, LINE, MARGIN = 8.4, 19, 16  # as the recorder has them


def record(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RECORDER, out, *arguments], capture_output=True, text=True, check=False)


class Shown(NamedTuple):
    """A piece of output in a recording: where it stands, in lines and columns, and when it appears, in seconds."""

    line: int
    column: int
    text: str
    seconds: float
    is_typed: bool


def shown(picture: Path) -> list[Shown]:
    pieces = []
    for element in ET.parse(picture).iter(TEXT):  # noqa: S314 - our own file
        delay = re.search(r"animation-delay:([\d.]+)s", element.attrib["style"])
        assert delay is not None
        line, column = float(element.attrib["y"]) // LINE, (float(element.attrib["x"]) - MARGIN) / COLUMN
        text = (element.text or "").replace(NO_BREAK, " ")
        pieces.append(Shown(int(line), round(column), text, float(delay[1]), element.get("class") == "typed"))
    return pieces


def test_the_architecture_is_drawn_as_it_is_now() -> None:
    """After a change: python docs/draw_architecture.py."""
    assert PICTURE.read_text(encoding="utf-8") == drawing()
    steps = [name for name, _ in ROWS[-1].boxes]
    assert steps == ["plan", "draft", "verify", "accept", "emit"]


def test_the_recording_of_the_readme_shows_the_same_answer_twice() -> None:
    picture = ROOT / "docs" / "terminal.svg"
    assert picture.stat().st_size < MOST_BYTES
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("(docs/terminal.svg)") == 1
    pieces = shown(picture)
    text = "".join(piece.text for piece in pieces)
    answers = re.findall(r"\$ pilotfish run .*? 80(?: --source plain)?(.*?)\d+ prompt tokens", text, re.DOTALL)
    assert len(answers) == 2
    assert answers[0].replace(" ", "") == answers[1].replace(" ", "") != ""


def test_output_appears_where_and_when_it_was_written(tmp_path: Path) -> None:
    commands = ('sh -c \'printf "a <b>"; sleep 0.3; echo " xxxx yyyy"\'', "echo ä")
    done = record(tmp_path / "out.svg", *commands, "--columns", "12", "--slower", "2")
    assert done.returncode == 0, done.stderr
    pieces = [piece for piece in shown(tmp_path / "out.svg") if not piece.is_typed]
    first = pieces[0].line
    places = [(piece.line - first, piece.column, piece.text) for piece in pieces]
    num_lines = -(-len(f"$ {commands[1]}") // 12)
    assert places == [(0, 0, "a <b>"), (0, 5, " xxxx y"), (1, 0, "yyy"), (3 + num_lines, 0, "ä")]
    assert pieces[1].seconds - pieces[0].seconds >= 2 * 0.29


def test_pauses_are_cut(tmp_path: Path) -> None:
    done = record(tmp_path / "out.svg", "sh -c 'echo a; sleep 1; echo b'", "--longest-pause", "0.25")
    assert done.returncode == 0, done.stderr
    moments = {piece.text: piece.seconds for piece in shown(tmp_path / "out.svg")}
    assert moments["b"] - moments["a"] == pytest.approx(0.25, abs=0.001)


@pytest.mark.parametrize(
    ("command", "message"),
    [("sh -c 'exit 3'", "ended with 3"), ("printf '\\033[1m'", r"the output has '\x1b'")],
)
def test_what_cannot_be_recorded_is_an_error(command: str, message: str, tmp_path: Path) -> None:
    done = record(tmp_path / "out.svg", command)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "out.svg").exists()
