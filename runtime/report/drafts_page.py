"""The page of ``pilotfish evaluate-draft``: drafts, heads and bit settings side by side, and which to ship."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotfish.runtime.memory import format_bytes

from .page import Page
from .svg import Bar, bars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.shape_evaluation import ShapeScores, SourceScores

_LEAST_GAIN = 1.03  # below it a draft is not worth its memory
_NEAR = 0.97  # of the fastest: as good, for costs that are measured once


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft or head of a bundle, with what it costs."""

    bundle: str
    source: str
    formats: str
    """Of the target's and the draft's weights."""
    total_bytes: int
    """Of the bundle's memory plan."""
    scores: tuple[SourceScores, ...]
    """By category, and last over all prompts."""

    @property
    def best(self) -> ShapeScores:
        """Its fastest shape over all prompts."""
        return self.scores[-1].best

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.source} of {self.bundle}"


def advice(candidates: Sequence[Candidate]) -> str:
    """One sentence: what to ship, and why."""
    ranked = sorted(candidates, key=lambda each: each.best.tokens_per_s, reverse=True)
    fastest = ranked[0]
    if fastest.best.speedup < _LEAST_GAIN:
        return (
            f"Ship none of them: the best one, the {fastest.name}, promises {fastest.best.speedup:.2f} times plain "
            f"decoding, which is not worth its memory."
        )
    near = [each for each in ranked if each.best.tokens_per_s >= _NEAR * fastest.best.tokens_per_s]
    chosen = min(near, key=lambda each: each.total_bytes)
    best = chosen.best
    reason = (
        f"it gives {best.acceptance_length:.2f} tokens a round ({best.shape}) and so promises {best.tokens_per_s:.0f} "
        f"tokens/s, {best.speedup:.2f} times plain decoding"
    )
    if chosen is not fastest:
        share = best.tokens_per_s / fastest.best.tokens_per_s
        saved = format_bytes(fastest.total_bytes - chosen.total_bytes)
        return (
            f"Ship the {chosen.name}: {reason}, which is {share:.0%} of the fastest, the {fastest.name}, with {saved} "
            "less memory."
        )
    if len(ranked) == 1:
        return f"Ship the {chosen.name}: {reason}."
    others = [each for each in ranked if each is not chosen]
    second = others[0].best.tokens_per_s
    ahead = f"{best.tokens_per_s / second - 1:.0%} more than" if second else "and nothing could be measured of"
    return f"Ship the {chosen.name}: {reason}, {ahead} the {others[0].name}."


def drafts_page(candidates: Sequence[Candidate], cpu: str, prompts: str) -> Page:
    """The page of an evaluation."""
    page = Page(
        "pilotfish evaluate-draft: which draft to ship",
        f"{cpu}; prompts of {prompts}; speeds are what measured costs of passes promise for the rounds that were run",
    )
    page.note(advice(candidates))
    if len({each.formats for each in candidates}) > 1:
        page.paragraph(
            "The bundles differ in the bits of their weights; this compares speed, not the answers' quality."
        )
    page.section("Speed")
    drawn = [
        Bar(each.source, each.best.tokens_per_s, f"{each.best.tokens_per_s:.0f} tokens/s", index)
        for index, each in enumerate(candidates)
    ]
    page.chart(
        "speed",
        "Tokens a second of the best shape over all prompts.",
        bars("Tokens a second", [(each.bundle, [bar]) for each, bar in zip(candidates, drawn, strict=True)]),
    )
    header = ("draft", "weights", "best shape", "tokens a round", "accepted", "tokens/s", "x plain", "memory")
    page.table(header, [_row(each) for each in candidates])
    _add_kinds(page, candidates)
    _add_acceptance(page, candidates)
    return page


def _add_acceptance(page: Page, candidates: Sequence[Candidate]) -> None:
    page.section("Acceptance by depth")
    groups = [
        (
            each.name,
            [Bar(f"depth {depth}", rate, f"{rate:.0%}", index) for depth, rate in enumerate(each.best.by_position, 1)],
        )
        for index, each in enumerate(candidates)
    ]
    page.chart(
        "acceptance",
        "Share of rounds that went so deep, of those that went one less deep and could go on; of the best shape.",
        bars("Acceptance by depth", groups),
    )
    for each in candidates:
        page.section(f"All shapes: {each.name}")
        shapes = [shape.shape for shape in each.scores[-1].shapes]
        page.table(
            ("category", *shapes),
            [
                (item.category, *(f"{shape.acceptance_length:.2f} ({shape.speedup:.2f} x)" for shape in item.shapes))
                for item in each.scores
            ],
        )


def _add_kinds(page: Page, candidates: Sequence[Candidate]) -> None:
    kinds = [item.category for item in candidates[0].scores[:-1]]
    if len(kinds) < 2:  # noqa: PLR2004 - one kind has nothing to compare
        return
    page.section("By kind of prompt")
    order = ", ".join(each.name for each in candidates)
    groups = [
        (
            kind,
            [
                Bar(each.source, item.best.speedup, f"{item.best.speedup:.2f} x", index)
                for index, each in enumerate(candidates)
                for item in each.scores
                if item.category == kind
            ],
        )
        for kind in kinds
    ]
    page.chart(
        "kinds",
        f"Speed relative to plain decoding with the best shape of each kind; in the order {order}.",
        bars("Speed by kind of prompt, relative to plain decoding", groups, mark=1.0),
    )


def _row(each: Candidate) -> tuple[str, ...]:
    best = each.best
    speed = (f"{best.acceptance_length:.2f}", f"{best.acceptance_rate:.0%}", f"{best.tokens_per_s:.1f}")
    return (each.name, each.formats, best.shape, *speed, f"{best.speedup:.2f}", format_bytes(each.total_bytes))
