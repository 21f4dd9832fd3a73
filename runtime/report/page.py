"""A page of a report: one HTML file without scripts that asks for nothing, in light and dark, on paper and phones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .escaped import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c2128",
    "muted": "#68717d",
    "grid": "#dfe3e8",
    "c0": "#0072b2",
    "c1": "#d98c00",
    "c2": "#009e73",
    "c3": "#c0558f",
    "c4": "#d55e00",
    "c5": "#3f9fd8",
    "c6": "#7a5fc4",
    "c7": "#8a9099",
}
DARK = LIGHT | {
    "paper": "#14181d",
    "ink": "#e4e8ed",
    "muted": "#97a1ad",
    "grid": "#333b45",
    "c0": "#3d9fdc",
    "c1": "#e8a92c",
    "c2": "#25b98e",
    "c3": "#d97fb2",
    "c4": "#ee7b35",
    "c5": "#7cc4ee",
    "c6": "#a48cf0",
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:1.2rem 0 .3rem}
p{margin:.4rem 0;overflow-wrap:anywhere}.note{border-left:4px solid var(--c1);padding:.1rem .8rem}
.wide{overflow-x:auto}figure{margin:.8rem 0}figcaption{color:var(--muted);font-size:.9rem}
figure svg{display:block;width:100%;max-width:46rem;min-width:26rem;height:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--grid);vertical-align:top}
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid var(--muted)}
.text td,.text th{text-align:left;overflow-wrap:anywhere}
.answer{border:1px solid var(--grid);border-radius:6px;padding:.6rem .8rem;white-space:pre-wrap;overflow-wrap:anywhere}
@page{size:A4;margin:14mm}
@media print{body{font-size:10pt;max-width:none;padding:0}figure,table,tr,.answer{break-inside:avoid}
h2,h3{break-after:avoid}.wide{overflow:visible}figure svg{min-width:0;max-width:150mm}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with what it says."""

    name: str
    """Of its file, where it becomes one."""
    caption: str
    svg: str


@dataclass(slots=True)
class Page:
    """Sections in their order. What is added is text: it is escaped here, and nowhere else."""

    title: str
    subtitle: str = ""
    charts: list[Chart] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)

    def section(self, title: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escaped(title)}</h2>")

    def heading(self, title: str) -> None:
        """Begin a part of a section."""
        self._parts.append(f"<h3>{escaped(title)}</h3>")

    def paragraph(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{escaped(text)}</p>")

    def note(self, text: str) -> None:
        """A paragraph that must not be missed."""
        self._parts.append(f'<p class="note">{escaped(text)}</p>')

    def chart(self, name: str, caption: str, svg: str, legend: str = "") -> None:
        """A chart with a legend, which is an SVG too."""
        self.charts.append(Chart(name, caption, svg))
        self._parts.append(
            f'<figure id="{escaped(name)}"><div class="wide">{legend}{svg}</div>'
            f"<figcaption>{escaped(caption)}</figcaption></figure>"
        )

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], *, is_text: bool = False) -> None:
        """A table whose first column is text and whose others are numbers, unless all are text."""
        head = "".join(f"<th>{escaped(cell)}</th>" for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        kind = ' class="text"' if is_text else ""
        self._parts.append(
            f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def coloured(self, pieces: Iterable[tuple[str, int | None]]) -> None:
        """A text whose pieces have one of the colours behind them, or None."""
        spans = "".join(
            escaped(text)
            if colour is None
            else f'<span class="token" style="background:color-mix(in srgb,var(--c{colour}) 35%,transparent)">'
            f"{escaped(text)}</span>"
            for text, colour in pieces
        )
        self._parts.append(f'<div class="answer">{spans}</div>')

    def html(self) -> str:
        """The whole file."""
        themes = f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
        dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
            f"<title>{escaped(self.title)}</title><style>{themes}{dark}{_STYLE}</style></head><body>"
            f"<h1>{escaped(self.title)}</h1><p>{escaped(self.subtitle)}</p>\n"
            + "\n".join(self._parts)
            + "</body></html>\n"
        )


def _variables(theme: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in theme.items())
