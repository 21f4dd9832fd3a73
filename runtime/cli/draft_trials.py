"""What the export tried for a draft or head: one table for the export, info and evaluate-draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .console import out, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.manifest import DraftTrial, Manifest


def show_kept_trials(manifest: Manifest, bundle: object) -> None:
    """Shows what a bundle's manifest has kept of them."""
    drafts = [trial for model in manifest.models for trial in model.trials]
    show_trials(f"{bundle}: drafts that its export tried", drafts)
    show_trials(f"{bundle}: heads that its export tried", manifest.head.trials if manifest.head else ())


def show_trials(title: str, trials: Sequence[DraftTrial]) -> None:
    """Shows what each format and vocabulary costs, how often it was right, and what that promises; nothing of none."""
    if not trials:
        return
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
    out().print(table(f"{title}; step: drafting a token, of a target's pass", header, rows))
