"""What the export tried for a draft: one table for the export and for evaluate-draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .console import out, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.manifest import DraftTrial


def show_trials(title: str, trials: Sequence[DraftTrial]) -> None:
    """Shows what each format and vocabulary costs, how often it was right, and what that promises."""
    header = ("linear", "embedding", "output", "ids", "step", "agreement", "drafted", "tokens a round", "x plain", "")
    rows = [
        (
            trial.linear,
            trial.embedding,
            trial.lm_head,
            str(trial.num_logits),
            f"{trial.step_cost:.3f}",
            f"{trial.agreement:.1%}",
            str(trial.chain),
            f"{trial.acceptance_length:.2f}",
            f"{trial.speedup:.2f}",
            "chosen" if trial.is_chosen else "",
        )
        for trial in trials
    ]
    out().print(table(f"{title}; step: a pass, of one of the target's", header, rows))
