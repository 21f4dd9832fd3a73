"""The curves of a run as one PNG. Knows nothing about training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from .state import Measurement

_PANELS = (
    ("loss", "loss, nats a token"),
    ("sampled", "acceptance, sum min(p, q)"),
    ("greedy_length", "tokens a round, greedy, K = 4"),
)


def draw_curves(history: Sequence[Measurement], path: Path) -> None:
    """Three panels over the training steps: the batches as lines, the held-out text as dots, stages by colour."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - of the extra "train", which --help does without

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for axes, (field, label) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        _draw(axes, history, field)
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=110, format="png")


def _draw(axes: Axes, history: Sequence[Measurement], field: str) -> None:
    for colour, stage in enumerate(dict.fromkeys(point.stage for point in history)):
        for held_out, style in ((False, "-"), (True, "o")):
            points = [point for point in history if point.stage == stage and point.held_out is held_out]
            steps = [point.total_step for point in points]
            label = f"{stage}, held out" if held_out else stage
            axes.plot(
                steps, [getattr(point, field) for point in points], style, color=f"C{colour}", ms=4, lw=1, label=label
            )
