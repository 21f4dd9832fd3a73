"""Records commands on a terminal as an animated SVG: python samples/record_terminal.py OUT.svg COMMAND...

The commands run in turn on a pseudo-terminal. Each piece of output appears in the picture when it appeared there;
--slower plays everything slower by a factor, and pauses are cut to --longest-pause seconds. A viewer without animation
shows the end. One character takes one column.
"""

from __future__ import annotations

import argparse
import codecs
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from fcntl import ioctl
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMN, LINE, MARGIN = 8.4, 19, 16  # pixels
NO_BREAK = "&#160;"  # viewers collapse other spaces
STYLE = """
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d6deeb }
  .typed { fill: #7fdbca; font-weight: bold }
  text { animation: appear 0.01s both }
  @keyframes appear { from { opacity: 0 } to { opacity: 1 } }
  @media (prefers-reduced-motion: reduce) { text { animation: none } }
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """Output that appeared at once."""

    seconds: float
    """Since the recording began."""
    text: str
    is_typed: bool = False


def record(command: str, num_columns: int) -> Iterator[tuple[float, str]]:
    """Run a command on a terminal of its own and yield what it writes, with the time of a monotonic clock."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, num_columns, 0, 0))
    environment = os.environ | {"TERM": "dumb", "COLUMNS": str(num_columns)}
    with subprocess.Popen(
        shlex.split(command), stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        decoder = codecs.getincrementaldecoder("utf-8")()
        while content := _read(master):
            if text := decoder.decode(content):  # a piece may end within a character, or between \r and \n
                yield time.monotonic(), text
    os.close(master)
    if process.returncode != 0:
        sys.exit(f"{command} ended with {process.returncode}")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # what Linux reports when the program has closed its end
        return b""


def pieces_of(commands: list[str], num_columns: int, longest_pause: float) -> list[Piece]:
    """What the terminal shows, commands included."""
    pieces, shown, last = [], 0.0, time.monotonic()
    for command in commands:
        pieces.append(Piece(shown, f"$ {command}\n", is_typed=True))
        for moment, text in record(command, num_columns):
            shown += min(moment - last, longest_pause)
            last = moment
            pieces.append(Piece(shown, text))
        pieces.append(Piece(shown, "\n"))
    return pieces


def svg(pieces: list[Piece], num_columns: int, slower: float, label: str) -> str:
    """The picture."""
    placed = list(_placed(pieces, num_columns))
    num_lines = 1 + max(line for _, _, line, _ in placed)
    width, height = 2 * MARGIN + num_columns * COLUMN, 2 * MARGIN + num_lines * LINE
    texts = [_element(*place, slower) for place in placed]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">\n'
        f"<title>{escape(label)}</title>\n<style>{STYLE}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#011627"/>\n{"".join(texts)}</svg>\n'
    )


def _element(piece: Piece, text: str, line: int, column: int, slower: float) -> str:
    shown = escape(text, quote=False).replace(" ", NO_BREAK)
    kind = ' class="typed"' if piece.is_typed else ""
    return (
        f'<text x="{MARGIN + column * COLUMN:.1f}" y="{MARGIN + (line + 0.75) * LINE:.1f}" '
        f'textLength="{len(text) * COLUMN:.1f}" lengthAdjust="spacingAndGlyphs" '
        f'style="animation-delay:{piece.seconds * slower:.3f}s"{kind}>'
        f"{shown}</text>\n"
    )


def _placed(pieces: list[Piece], num_columns: int) -> Iterator[tuple[Piece, str, int, int]]:
    """Each piece in parts that lie on one line, with line and column."""
    line = column = 0
    for piece in pieces:
        text = ""
        for character in piece.text:
            if character == "\r":  # of \r\n, which terminals make of \n
                continue
            if character == "\n" or column == num_columns:
                if text:
                    yield piece, text, line, column - len(text)
                line, column, text = line + 1, 0, ""
            if character == "\n":
                continue
            if not character.isprintable():
                sys.exit(f"the output has {character!r}: commands must write plain text to a terminal of the kind dumb")
            text, column = text + character, column + 1
        if text:
            yield piece, text, line, column - len(text)


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.svg")
    parser.add_argument("commands", nargs="+", metavar="COMMAND")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--slower", type=float, default=1.0, help="factor by which the picture plays slower")
    parser.add_argument("--longest-pause", type=float, default=1.0, metavar="SECONDS")
    arguments = parser.parse_args()
    pieces = pieces_of(arguments.commands, arguments.columns, arguments.longest_pause)
    label = f"A recording of {' and '.join(arguments.commands)}, played {arguments.slower:g} times slower"
    arguments.out.write_text(svg(pieces, arguments.columns, arguments.slower, label), encoding="utf-8")


if __name__ == "__main__":
    main()
