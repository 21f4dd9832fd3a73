"""``pilotfish evaluate-weights``: what formats and rounding cost, so that a user can choose."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.bindings import InvalidArgumentError, UnsupportedError
from pilotfish.runtime.manifest import read_manifest
from pilotfish.runtime.report.weights_page import WeightsRow, cells, weights_page

from .arguments import Json
from .console import out, show, table
from .export_report import ExportBars
from .flags import with_groups
from .mixture import describe_shares
from .pages import PageFlags
from .signals import signals_exit

if TYPE_CHECKING:
    from pilotfish.exporter.weight_quality import WeightScores, WeightsReport

SCHEMA = "pilotfish-evaluate-weights-1"
Bundles = Annotated[list[str], typer.Argument(metavar="BUNDLE...", help="Bundles of TARGET to compare.")]
Target = Annotated[str, typer.Option(metavar="TARGET", help="The checkpoint that they were exported from.")]
Text = Annotated[str, typer.Option(metavar="FILE", help="Plain text that no calibration has read.")]
Tokens = Annotated[int, typer.Option(min=1024, help="Tokens of the text at most, from all over it.")]


@with_groups
def evaluate_weights(
    bundles: Bundles, *, target: Target, text: Text, tokens: Tokens = 4096, pages: PageFlags, json_file: Json = None
) -> None:
    """Compare formats and roundings: perplexity, difference from the checkpoint's own weights, accepted drafts."""
    try:
        from pilotfish.exporter import weight_quality  # noqa: PLC0415 - needs the extra, and torch takes seconds
        from pilotfish.exporter.errors import ExportError  # noqa: PLC0415
    except ImportError as error:
        raise UnsupportedError(f"evaluating weights needs {error.name}: pip install 'pilotfish[export]'") from error
    for bundle in bundles:
        read_manifest(bundle)  # a wrong path shows before torch runs
    pages.check(json_file, [text])
    try:
        with signals_exit(), ExportBars() as bars:
            report = weight_quality.evaluate_weights(target, bundles, text, num_tokens=tokens, progress=bars)
    except ExportError as error:
        raise InvalidArgumentError(str(error)) from error
    rows = [_row(each) for each in report.scores]
    pages.deliver(
        lambda: weights_page(report.target, report.text, report.num_tokens, report.perplexity, rows),
        json_file,
        {"schema": SCHEMA} | dataclasses.asdict(report),
        lambda: _show(report),
    )


def _show(report: WeightsReport) -> None:
    header, body = cells([_row(each) for each in report.scores], report.perplexity)
    out().print(table(f"weights of {report.target} on {report.num_tokens} tokens of {report.text}", header, body))
    show(f"perplexity of the checkpoint's own weights: {report.perplexity:.4f}")


def _row(scores: WeightScores) -> WeightsRow:
    accepted = ", ".join(f"{each.source} {each.length:.2f} ({each.rate:.0%})" for each in scores.acceptance)
    return WeightsRow(
        name=scores.bundle,
        formats=describe_shares(scores.mixture),
        bits_per_weight=scores.bits_per_weight,
        num_bytes=scores.num_bytes,
        perplexity=scores.perplexity,
        kl=scores.kl,
        top1_agreement=scores.top1_agreement,
        accepted=accepted,
    )
