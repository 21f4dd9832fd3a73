"""The table and page of ``pilotfish evaluate-weights``: bundles of one target side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.runtime.memory import format_bytes

from .page import Page
from .svg import Bar, bars

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class WeightsRow:
    """What one bundle's weights cost."""

    name: str
    formats: str
    bits_per_weight: float
    num_bytes: int
    perplexity: float
    kl: float
    top1_agreement: float
    accepted: str
    """Of each draft and head, tokens a round and the share that is accepted; empty without one."""


def cells(rows: Sequence[WeightsRow], perplexity: float) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of the table; ``perplexity`` is that of the checkpoint's own weights."""
    has_drafts = any(row.accepted for row in rows)
    header = ("bundle", "linear layers", "bits/weight", "size", "perplexity", "more", "KL", "same likeliest")
    body = [
        (
            row.name,
            row.formats,
            f"{row.bits_per_weight:.2f}",
            format_bytes(row.num_bytes),
            f"{row.perplexity:.3f}",
            f"{row.perplexity / perplexity - 1:+.2%}",
            f"{row.kl:.4f}",
            f"{row.top1_agreement:.1%}",
            *((row.accepted or "none",) if has_drafts else ()),
        )
        for row in rows
    ]
    return (*header, *(("tokens a round (accepted)",) if has_drafts else ())), body


def weights_page(target: str, text: str, num_tokens: int, perplexity: float, rows: Sequence[WeightsRow]) -> Page:
    """The page of an evaluation; ``perplexity`` is that of the checkpoint's own weights."""
    page = Page(
        "pilotfish evaluate-weights: what formats and rounding cost",
        f"{target}; {num_tokens} tokens of {text}; perplexity of the checkpoint's own weights {perplexity:.4f}",
    )
    page.section("Bundles")
    page.table(*cells(rows, perplexity))
    charts = (
        (
            "perplexity",
            "Perplexity relative to the checkpoint's own",
            [row.perplexity / perplexity for row in rows],
            1.0,
        ),
        ("kl", "KL from the checkpoint's own weights, nats a token", [row.kl for row in rows], None),
    )
    for name, title, values, mark in charts:
        groups = [
            (row.name, [Bar(row.formats, value, f"{value:.4f}", index)])
            for index, (row, value) in enumerate(zip(rows, values, strict=True))
        ]
        page.chart(name, f"{title}; lower is better.", bars(title, groups, mark=mark))
    return page
