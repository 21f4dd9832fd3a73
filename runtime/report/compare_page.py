"""The page of ``pilotfish compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .page import Page
from .svg import Bar, bars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .compare import Comparison, ModeChange

CHANGE_HEADER = ("mode", "before, tokens/s", "after", "ratio", "95 % sure", "verdict", "gain over plain")


def compare_page(first: str, comparisons: Sequence[Comparison], notes: Sequence[str]) -> Page:
    """The page of comparisons with the report ``first``."""
    page = Page(f"pilotfish compare: {first}", f"beside {', '.join(each.name for each in comparisons)}")
    for line in notes:
        page.note(line)
    for index, each in enumerate(comparisons):
        page.section(each.name)
        if each.changes:
            _add_changes(page, each, f"ratios-{index + 1}")
        page.heading("What was different")
        page.table(("what", first, each.name), each.facts or [("nothing that is recorded", "", "")], is_text=True)
        page.heading("Other numbers, whose spread is not known")
        page.table(
            ("what", first, each.name, "ratio"),
            [
                (name, f"{before:.4g}", f"{after:.4g}", f"{after / before:.3f}" if before else "")
                for name, before, after in each.numbers
            ],
        )
    return page


def _add_changes(page: Page, each: Comparison, name: str) -> None:
    drawn = [
        Bar(
            change.mode, change.ratio.median, f"{change.ratio.median:.3f} x", index, change.ratio.low, change.ratio.high
        )
        for index, change in enumerate(each.changes)
    ]
    pairs = "prompt by prompt" if each.is_paired else "of medians, since they measured other prompts or settings"
    page.chart(
        name,
        f"Speed relative to the first report, {pairs}, with the interval that holds the median with 95 % confidence.",
        bars("Speed relative to the first report", [("", drawn)], mark=1.0),
    )
    page.table(CHANGE_HEADER, [change_row(change) for change in each.changes])


def change_row(change: ModeChange) -> tuple[str, ...]:
    """A mode's change as a row of a table."""
    ratio = change.ratio
    sure = "" if ratio.low is None or ratio.high is None else f"{ratio.low:.3f} .. {ratio.high:.3f}"
    speeds = (f"{change.before:.1f}", f"{change.after:.1f}", f"{ratio.median:.3f}")
    return (change.mode, *speeds, sure, change.verdict, _gain_text(change))


def _gain_text(change: ModeChange) -> str:
    gain = change.gain
    if gain is None:
        return ""
    sure = "" if gain.low is None or gain.high is None else f" ({gain.low:.3f} .. {gain.high:.3f})"
    return f"{gain.median:.3f}{sure}"
