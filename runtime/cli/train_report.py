"""What a training run shows: a bar a phase with loss and acceptance on stderr, then its scores on stdout."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as RemainingColumn

from .bars import Bars
from .console import note, out, show, table

if TYPE_CHECKING:
    from pilotfish.exporter.training import StepReport, TrainResult
    from pilotfish.exporter.training.acceptance import AcceptanceScores

_SHOWN_DEPTH = 4


class TrainingBars(Bars):
    """The exporter's TrainingProgress as one bar a phase; every held-out evaluation leaves a line."""

    def __init__(self, *, shown: bool) -> None:
        """Prepare the bars; of several processes only one shows them."""
        super().__init__(
            TextColumn("{task.description:<32}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            RemainingColumn(),
            TextColumn("{task.fields[scores]}"),
            shown=shown,
        )
        self._shown = shown

    def phase(self, name: str, total: int) -> None:
        """A new bar."""
        self._begin(name, total, scores="")

    def report(self, report: StepReport) -> None:
        """Shows a step's numbers behind the bar, and an evaluation's as a line above it."""
        scores = report.held_out or report.batch
        acceptance = "" if scores is None else f", acceptance {scores.sampled:.3f} sampled, greedy {_by_depth(scores)}"
        numbers = f"loss {report.loss:.4f}{acceptance}"
        if report.held_out is not None and self._shown:
            line = f"{report.stage} {report.step}/{report.steps}, held out: {numbers}"
            if self._bars.console.is_terminal:
                self._bars.console.print(line, markup=False, highlight=False)
            else:
                note(line)
        elif self._task is not None:
            self._bars.update(self._task, scores=f"{numbers}, {report.tokens_per_s:.0f} tokens/s")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._complete()
        super().__exit__(kind, error, traceback)


def show_result(result: TrainResult) -> None:
    """Held-out scores of each stage, scores on the evaluation prompts, and where the draft is."""
    header: tuple[str, ...] = ("held out", "loss", "acceptance, sampled", "acceptance, greedy", "tokens a round, K = 4")
    rows: list[tuple[str, ...]] = [
        (
            stage.name,
            f"{stage.held_out_loss:.4f}",
            f"{stage.held_out.sampled:.1%}",
            f"{stage.held_out.greedy:.1%}",
            f"{stage.held_out.greedy_lengths[3]:.2f}",
        )
        for stage in result.record.stages
    ]
    out().print(table(str(result.folder), header, rows))
    if result.record.prompts:
        header = ("prompts", "tokens", "agreement", *(f"K = {item.chain}" for item in result.record.prompts[-1].chains))
        rows = [
            (
                row.category,
                str(row.num_tokens),
                f"{row.agreement:.1%}",
                *(f"{chain.acceptance_length:.2f}" for chain in row.chains),
            )
            for row in result.record.prompts
        ]
        out().print(table("greedy answers: tokens a round", header, rows))
    option = "--draft" if result.record.kind == "draft" else "--head"
    show(
        f"weights and training card: {result.folder}; next: pilotfish export TARGET {option} {result.folder} --out DIR"
    )


def _by_depth(scores: AcceptanceScores) -> str:
    """Greedy acceptance of a chain's first tokens, each given the ones before it."""
    return " ".join(f"{value:.2f}" for value in scores.greedy_by_depth[:_SHOWN_DEPTH] if value)
