"""Draws how pilotfish works, from a checkpoint to text: python docs/draw_architecture.py writes architecture.svg."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).with_name("architecture.svg")
WIDTH, HEIGHT, GAP, MARGIN = 166, 64, 28, 20  # of a box, between boxes, around all; pixels
LABEL = 26  # above a row
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .name { font-weight: bold; font-size: 15px; text-anchor: middle }
  .what { text-anchor: middle }
  .box { fill: #e3f0fb; stroke: #3f7cac }
  .once { fill: #eef2e6; stroke: #7a8b56 }
  .arrow { fill: none; stroke: #1f2933; stroke-width: 1.5; marker-end: url(#tip) }
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Boxes from left to right: name, and what it is or does."""

    label: str
    boxes: tuple[tuple[str, str], ...]
    style: str
    is_loop: bool = False


ROWS = (
    Row(
        "once for each model",
        (
            ("checkpoint", "safetensors or GGUF"),
            ("exporter", "trace, fuse, quantise"),
            ("bundle", "graphs and weights"),
        ),
        "once",
    ),
    Row(
        "once for each program, then once for each prompt",
        (("load", "check, plan memory"), ("prefill", "a pass over the prompt")),
        "box",
    ),
    Row(
        "a round, again and again until the text ends",
        (
            ("plan", "which source, how far"),
            ("draft", "a chain or a tree"),
            ("verify", "one pass of the target"),
            ("accept", "what the target chose"),
            ("emit", "tokens, then text"),
        ),
        "box",
        is_loop=True,
    ),
)


def x_of(column: int) -> int:
    """Left side of a box."""
    return 2 * MARGIN + column * (WIDTH + GAP)


def y_of(row: int) -> int:
    """Upper side of a box."""
    return MARGIN + LABEL + row * (HEIGHT + LABEL + 2 * GAP)


def drawing() -> str:
    """The picture, as SVG."""
    parts = [part for index, row in enumerate(ROWS) for part in _row(index, row)]
    parts += [_turn(index, ROWS[index]) for index in range(len(ROWS) - 1)]
    most = max(len(row.boxes) for row in ROWS)
    width, height = x_of(most) - GAP + 2 * MARGIN, y_of(len(ROWS) - 1) + HEIGHT + GAP + MARGIN
    names = ", ".join(name for row in ROWS for name, _ in row.boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>How pilotfish works: {names}</title>\n<style>{STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#1f2933"/></marker></defs>\n'
        f'<rect width="100%" height="100%" rx="8" fill="#ffffff"/>\n{"".join(parts)}</svg>\n'
    )


def _row(index: int, row: Row) -> list[str]:
    y, last = y_of(index), len(row.boxes) - 1
    parts = [f'<text x="{x_of(0)}" y="{y - 12}">{escape(row.label)}</text>\n']
    for column, (name, what) in enumerate(row.boxes):
        middle = x_of(column) + WIDTH // 2
        parts.append(
            f'<rect x="{x_of(column)}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" class="{row.style}"/>'
            f'<text x="{middle}" y="{y + 28}" class="name">{escape(name)}</text>'
            f'<text x="{middle}" y="{y + 48}" class="what">{escape(what)}</text>\n'
        )
        if column < last:
            parts.append(_path(f"M{x_of(column) + WIDTH} {y + HEIGHT // 2} h{GAP}"))
    if row.is_loop:
        first, end, below = x_of(0) + WIDTH // 2, x_of(last) + WIDTH // 2, y + HEIGHT + GAP
        parts.append(_path(f"M{end} {y + HEIGHT} V{below} H{first} V{y + HEIGHT}"))
    return parts


def _turn(index: int, row: Row) -> str:
    """From the last box of a row to the first one of the next."""
    start, y = x_of(len(row.boxes) - 1) + WIDTH // 2, y_of(index) + HEIGHT
    end, between = x_of(0) - MARGIN // 2, y + GAP
    return _path(f"M{start} {y} V{between} H{end - MARGIN // 2} V{y_of(index + 1) + HEIGHT // 2} H{x_of(0)}")


def _path(steps: str) -> str:
    return f'<path d="{steps}" class="arrow"/>\n'


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(PICTURE)
