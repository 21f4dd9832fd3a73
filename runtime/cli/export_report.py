"""What an export shows: bars on stderr while it runs, then the summary on stdout and warnings on stderr."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from pilotfish.runtime.memory import format_bytes

from .bars import Bars
from .console import note, out, show, table
from .draft_trials import show_trials
from .mixture import describe_shares

if TYPE_CHECKING:
    from pilotfish.exporter import ExportResult, ModelSummary
    from pilotfish.exporter.head_export import HeadSummary


class ExportBars(Bars):
    """The exporter's progress as one bar a stage."""

    def __init__(self) -> None:
        super().__init__(TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

    def stage(self, name: str, total: int) -> None:
        """A new bar."""
        self._begin(name, total)

    def note(self, text: str) -> None:
        """A line on stderr, above the bars."""
        note(f"note: {text}")

    def finish(self) -> None:
        """Fills the last bar."""
        self._complete()


def show_result(result: ExportResult) -> None:
    """The summary table, the formats with their reasons, and the differences from torch."""
    header = ("model", "source", "parameters", "layers", "nodes", "nodes/layer", "bits/weight", "size")
    rows = [
        (
            model.name,
            model.source,
            f"{model.parameters / 1e6:.1f} M",
            str(model.num_layers),
            str(model.num_nodes),
            str(model.nodes_per_layer),
            f"{model.bits_per_weight:.2f}",
            format_bytes(model.bytes),
        )
        for model in result.models
    ]
    out().print(table(str(result.folder), header, rows))
    for warning in result.warnings:
        note(f"warning: {warning}")
    _show_trials(result)
    for model in result.models:
        _show_formats(model)
        _show_calibration(model)
        _show_scored(model.name, model)
    if result.head is not None:
        _show_head(result.head)
        _show_scored("head", result.head)
    for model in result.models:
        _show_parity(model.name, model)
        _show_losses(model)
    if result.head is not None:
        _show_parity("head", result.head)


def _show_trials(result: ExportResult) -> None:
    manifest = result.manifest
    for title, part in (("drafts", manifest.models.get("draft")), ("heads", manifest.head)):
        if part is not None:
            show_trials(f"{title} that were tried", part.trials)


def _show_formats(model: ModelSummary) -> None:
    for decision in model.formats:
        show(f"{model.name} {decision.part}: {describe_shares(dict(decision.shares))}, {decision.reason}")
        if decision.warning is not None:
            note(f"warning: {model.name} {decision.warning}")


def _show_calibration(model: ModelSummary) -> None:
    if (found := model.calibration) is not None:
        show(
            f"{model.name} calibrated: {found.num_matrices} matrices on {found.num_tokens} tokens of {found.text}, "
            f"{found.num_nearest} have the nearest values; where it was not read, KL {found.held.calibrated:.3g} nats "
            f"a token, {found.held.nearest:.3g} with the nearest values alone"
        )


def _show_losses(model: ModelSummary) -> None:
    for loss in model.losses:
        show(
            f"{model.name} {loss.stored_type} as {loss.format}: relative error {loss.relative_error:.2%} of "
            f"{loss.num_weights / 1e6:.1f} M weights"
        )


def _show_head(head: HeadSummary) -> None:
    shared = f" and {format_bytes(head.shared_bytes)} of the target's" if head.shared_bytes else ""
    taps = ", ".join(map(str, head.taps))
    show(
        f"head: {head.kind} from {head.source}, {head.parameters / 1e6:.1f} M parameters, {head.format} "
        f"({head.format_reason}), {format_bytes(head.bytes)}{shared}, reads the streams into layers {taps}"
    )


def _show_scored(name: str, part: ModelSummary | HeadSummary) -> None:
    if part.num_logits < part.vocab_size:
        covered = "" if part.logit_coverage is None else f", {part.logit_coverage:.2%} of the text's tokens"
        show(f"{name} scores {part.num_logits} of {part.vocab_size} ids{covered}")


def _show_parity(name: str, part: ModelSummary | HeadSummary) -> None:
    if (parity := part.parity) is not None:
        show(
            f"{name} against torch over {parity.num_tokens:.0f} tokens: KL {parity.kl:.2g} nats a token, the same "
            f"likeliest token at {parity.top1_agreement:.1%}; with the checkpoint's own weights "
            f"{parity.original_kl:.2g}, {parity.original_top1_agreement:.1%}; of these are the weights' own "
            f"{parity.weights_kl:.2g}, {parity.weights_top1_agreement:.1%}"
        )


def numbers(result: ExportResult) -> dict[str, Any]:
    """The same for --json."""
    models = [dataclasses.asdict(model) for model in result.models]
    head = None if result.head is None else dataclasses.asdict(result.head)
    return {"folder": str(result.folder), "bytes": result.bytes, "models": models, "head": head}
