"""Charts as SVG: bars, lines and rows of segments.

Colours are variables of the page's style, so that one picture serves light, dark and paper; plotting libraries write
fixed colours, and are large for three kinds of chart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .escaped import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 560
_LEFT = 118  # for labels
_RIGHT = 92  # for values
_BAR = 15
_GAP = 5
_ROW = 26
NUM_COLOURS = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar: its value, the text at its end, and the ends of a whisker."""

    label: str
    value: float
    text: str
    colour: int = 0
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points (x, y)."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: int = 0
    is_dashed: bool = False


def bars(title: str, groups: Sequence[tuple[str, Sequence[Bar]]], mark: float | None = None) -> str:
    """Bars in groups with a heading each ("": none); ``mark`` is a vertical line to compare with, such as 1."""
    every = [bar for _, group in groups for bar in group]
    most = max([bar.high if bar.high is not None else bar.value for bar in every] + [mark or 0.0, 1e-12])
    scale = (WIDTH - _LEFT - _RIGHT) / most
    parts, y = [], 4.0
    for heading, group in groups:
        if heading:
            parts.append(_text(0, y + 13, heading, weight="bold"))
            y += 20
        for bar in group:
            parts += _bar(bar, y, scale)
            y += _BAR + _GAP
        y += 6
    if mark is not None:
        x = _LEFT + mark * scale
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{y:.1f}" {_stroke("muted")}/>')
    return _svg(title, y, parts)


def lines(title: str, drawn: Sequence[Line], x_label: str, y_label: str) -> str:
    """Lines over a logarithmic x axis of the numbers that occur, and a y axis from 0."""
    points = [point for line in drawn for point in line.points]
    xs = sorted({x for x, _ in points})
    top = _round_up(max(y for _, y in points))
    height, left, right, below = 250.0, 52.0, 16.0, 44.0 + 18 * len(drawn)
    low, high = math.log2(xs[0]), math.log2(xs[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        share = (math.log2(x) - low) / (high - low) if high > low else 0.5
        return left + share * (WIDTH - left - right), 8 + (1 - y / top) * (height - 16)

    parts = []
    for step in range(5):
        value = top * step / 4
        y = at(xs[0], value)[1]
        parts.append(f'<line x1="{left}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}" {_stroke("grid")}/>')
        parts.append(_text(left - 6, y + 4, f"{value:.3g}", anchor="end"))
    parts += [_text(at(x, 0)[0], height + 10, f"{x:g}", anchor="middle") for x in xs]
    parts.append(_text(WIDTH - right, height + 27, x_label, anchor="end"))
    parts.append(_text(left, height + 27, f"upwards: {y_label}"))
    for index, line in enumerate(drawn):
        parts += _line(line, [at(x, y) for x, y in line.points], height + 46 + 18 * index)
    return _svg(title, height + below, parts)


def segments(title: str, rows: Sequence[tuple[str, Sequence[tuple[float, int, str]]]]) -> str:
    """A row for each label: segments (length, colour, what it is) one after the other, all on one scale."""
    most = max([sum(length for length, _, _ in row) for _, row in rows] + [1e-12])
    scale = (WIDTH - _LEFT - 8) / most
    parts, y = [], 4.0
    for label, row in rows:
        parts.append(_text(_LEFT - 8, y + 13, label, anchor="end"))
        x = float(_LEFT)
        for length, colour, what in row:
            width = length * scale
            parts.append(
                f'<rect class="segment" data-value="{length:.4g}" x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" '
                f'height="{_BAR + 3}" {_fill(colour)}><title>{escaped(what)}</title></rect>'
            )
            x += width
        y += _ROW
    return _svg(title, y, parts)


def legend(entries: Sequence[tuple[str, int]]) -> str:
    """Squares of colour with their names, as an SVG of its own."""
    parts, x, y = [], 0.0, 4.0
    for name, colour in entries:
        width = 26 + 7.4 * len(name)
        if x and x + width > WIDTH:
            x, y = 0.0, y + 20
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="13" height="13" rx="2" {_fill(colour)}/>')
        parts.append(_text(x + 18, y + 11, name))
        x += width + 8
    return _svg("legend", y + 20, parts)


def _bar(bar: Bar, y: float, scale: float) -> list[str]:
    width = max(bar.value * scale, 1.0)
    box = f'x="{_LEFT}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}" rx="2"'
    parts = [
        _text(_LEFT - 8, y + 12, bar.label, anchor="end"),
        f'<rect class="bar" data-value="{bar.value:.6g}" {box} {_fill(bar.colour)}/>',
    ]
    end = _LEFT + width
    if bar.low is not None and bar.high is not None:
        low, high = _LEFT + bar.low * scale, _LEFT + bar.high * scale
        middle = y + _BAR / 2
        path = f"M{low:.1f} {middle - 4}v8M{low:.1f} {middle}H{high:.1f}M{high:.1f} {middle - 4}v8"
        parts.append(f'<path d="{path}" fill="none" {_stroke("ink")}/>')
        end = max(end, high)
    return [*parts, _text(end + 6, y + 12, bar.text)]


def _line(line: Line, points: Sequence[tuple[float, float]], legend_y: float) -> list[str]:
    dash = ' stroke-dasharray="5 4"' if line.is_dashed else ""
    style = f'fill="none" stroke="var(--c{line.colour})" stroke-width="2"{dash}'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline class="line" data-points="{len(points)}" points="{path}" {style}/>']
    if not line.is_dashed:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {_fill(line.colour)}/>' for x, y in points]
    parts.append(f'<path d="M52 {legend_y - 4:.1f}h26" {style}/>')
    return [*parts, _text(84, legend_y, line.name)]


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12.5"><title>{escaped(title)}</title>{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, content: str, *, anchor: str = "start", weight: str = "normal") -> str:
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    bold = "" if weight == "normal" else f' font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="var(--ink)"{placed}{bold}>{escaped(content)}</text>'


def _fill(colour: int) -> str:
    return f'fill="var(--c{colour % NUM_COLOURS})"'


def _stroke(name: str) -> str:
    return f'stroke="var(--{name})"'


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)
