"""The sample that writes user turns: its kinds, and that the same seed writes the same."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pilotfish.exporter.training.evaluate import read_prompts

SCRIPT = Path(__file__).parents[3] / "samples" / "user_turns.py"
PROSE = "Reefs\n\n" + "\n\n".join(
    f"Coral number {number} grows slowly in warm and shallow water. Many fish live near it, and storms break it."
    for number in range(200)
)
CODE = '''import math


def area(radius: float) -> float:
    """The area of a circle of this radius, in the radius's unit squared."""
    return math.pi * radius**2


def undocumented(x):
    return x
'''


def write(text: Path, out: Path, *numbers: str) -> str:
    done = subprocess.run(
        [sys.executable, SCRIPT, text, out, *numbers], capture_output=True, text=True, check=False, timeout=60
    )
    assert not done.returncode, done.stderr
    return out.read_text(encoding="utf-8")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "nl_reefs.txt").write_text(PROSE)
    (folder / "code_circles.txt").write_text(CODE)
    return folder


def test_every_kind_is_written_once_each(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "turns.jsonl"
    write(text, out, "400")
    turns = read_prompts(out)
    kinds = Counter(turn.category for turn in turns)
    assert set(kinds) == {"translation", "sums", "chat", "functions", "summaries", "passages"}
    assert len({turn.text for turn in turns}) == len(turns)
    assert all("{" not in turn.text for turn in turns)  # every place in a template is filled
    for turn in turns:
        assert ("Coral" in turn.text) == (turn.category in {"translation", "summaries", "passages"})
        assert ("def area" in turn.text) == (turn.category == "functions")
        assert "undocumented" not in turn.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("code_circles.txt", "x = 1", "hold no documented Python functions in files named code_"),
        ("nl_reefs.txt", None, "hold no prose"),
        ("nl_reefs.txt", "Too short a text.", "no text has paragraphs of 70 to 480 characters"),
    ],
)
def test_text_that_does_not_do(text: Path, tmp_path: Path, name: str, content: str | None, message: str) -> None:
    (text / name).unlink()
    if content is not None:
        (text / name).write_text(content)
    command = [sys.executable, SCRIPT, text, tmp_path / "out.jsonl", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_the_seed_decides(text: Path, tmp_path: Path) -> None:
    first, again, other = (
        write(text, tmp_path / name, "60", seed) for name, seed in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    assert first == again != other
