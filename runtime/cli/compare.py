"""``pilotfish compare``: what differs between benchmarks beyond noise."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.report.compare import ModeChange
from pilotfish.runtime.report.compare import compare as compare_reports
from pilotfish.runtime.report.compare_page import CHANGE_HEADER, change_row, compare_page
from pilotfish.runtime.report.schema import read_bench_report

from .arguments import Json
from .console import EXIT_CHECK_FAILED, note, out, show, table
from .flags import with_groups
from .pages import PageFlags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.report.compare import Comparison

SCHEMA = "pilotfish-compare/1"
Reports = Annotated[
    list[str], typer.Argument(metavar="A.json B.json...", help="Reports of pilotfish bench --json; A is compared with.")
]
FailBelow = Annotated[
    float | None,
    typer.Option(metavar="RATIO", help="Exit code 3 if a mode is slower than this beyond noise, as 0.95."),
]


@with_groups
def compare(reports: Reports, *, fail_below: FailBelow = None, pages: PageFlags, json_file: Json = None) -> None:
    """Show what differs between benchmarks beyond noise.

    Speeds are compared prompt by prompt where the reports measured the same prompts with the same options.
    """
    if len(reports) < 2:  # noqa: PLR2004 - a comparison
        raise InvalidArgumentError(f"compare has {len(reports)} report, must be two or more: A.json B.json")
    if fail_below is not None and not 0 < fail_below < math.inf:
        raise InvalidArgumentError(f"--fail-below is {fail_below}, must be above 0, as 0.95")
    pages.check(json_file, reports)
    loaded = [read_bench_report(path) for path in reports]
    found = [compare_reports(loaded[0], each, path) for each, path in zip(loaded[1:], reports[1:], strict=True)]
    notes = [
        f"{path} was measured on a busy machine"
        for path, each in zip(reports, loaded, strict=True)
        if each["conditions"]["is_busy"]
    ]
    notes += [f"{each.name} and {reports[0]} have no mode in common" for each in found if not each.changes]
    notes += [
        f"only one of {each.name} and {reports[0]} has: {', '.join(each.only_one)}"
        for each in found
        if each.changes and each.only_one
    ]
    content = {"schema": SCHEMA, "first": reports[0], "comparisons": [dataclasses.asdict(each) for each in found]}
    pages.deliver(
        lambda: compare_page(reports[0], found, notes), json_file, content, lambda: _show(reports[0], found, notes)
    )
    if fail_below is not None:
        _judge(found, fail_below)


def _show(first: str, found: Sequence[Comparison], notes: Sequence[str]) -> None:
    for each in found:
        out().print(table(f"{each.name} beside {first}", CHANGE_HEADER, [change_row(item) for item in each.changes]))
        if each.facts:
            out().print(table("what was different", ("what", first, each.name), each.facts, align="left"))
    for line in notes:
        note(f"note: {line}")


def _judge(found: Sequence[Comparison], fail_below: float) -> None:
    nothing = [each.name for each in found if not each.changes]
    if nothing:
        raise InvalidArgumentError(
            f"--fail-below {fail_below} has nothing to judge: the first report and {', '.join(nothing)} have no mode "
            "in common"
        )
    _fail_if_slower([(each.name, change) for each in found for change in each.changes], fail_below)


def _fail_if_slower(changes: list[tuple[str, ModeChange]], limit: float) -> None:
    slower = [(name, change) for name, change in changes if change.is_below(limit)]
    for name, change in slower:
        show(f"{name}: {change.mode} runs at {change.ratio.median:.3f} of its speed, below {limit}")
    if slower:
        raise typer.Exit(EXIT_CHECK_FAILED)
