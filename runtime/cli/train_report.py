"""What a training run shows: a bar a phase with loss and acceptance on stderr, then its scores on stdout."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as RemainingColumn

from .console import note, notes, out, show, table

if TYPE_CHECKING:
    from typing_extensions import Self

    from pilotfish.exporter.training import StepReport, TrainResult


class TrainingBars:
    """The exporter's TrainingProgress as one bar a phase; every held-out evaluation leaves a line."""

    def __init__(self, *, shown: bool) -> None:
        """Prepare the bars; of several processes only one shows them."""
        columns = (
            TextColumn("{task.description:<32}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            RemainingColumn(),
            TextColumn("{task.fields[scores]}"),
        )
        self._shown = shown
        self._bars = Progress(*columns, console=notes(), disable=not shown)
        self._task: TaskID | None = None

    def phase(self, name: str, total: int) -> None:
        """A new bar."""
        self._complete()
        self._task = self._bars.add_task(name, total=total, scores="")

    def advance(self, units: int) -> None:
        """Moves the newest bar."""
        if self._task is not None:
            self._bars.advance(self._task, units)

    def report(self, report: StepReport) -> None:
        """Shows a step's numbers behind the bar, and an evaluation's as a line above it."""
        scores = report.held_out or report.batch
        acceptance = "" if scores is None else f", acceptance {scores.sampled:.3f} sampled {scores.greedy:.3f} greedy"
        numbers = f"loss {report.loss:.4f}{acceptance}"
        if report.held_out is not None and self._shown:
            line = f"{report.stage} {report.step}/{report.steps}, held out: {numbers}"
            if self._bars.console.is_terminal:
                self._bars.console.print(line, markup=False, highlight=False)
            else:
                note(line)
        elif self._task is not None:
            self._bars.update(self._task, scores=f"{numbers}, {report.tokens_per_s:.0f} tokens/s")

    def _complete(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=self._bars.tasks[self._task].total)
            self._bars.stop_task(self._task)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._complete()
        self._bars.stop()


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
    show(f"draft and training card: {result.folder}; next: pilotfish export TARGET --draft {result.folder} --out DIR")
