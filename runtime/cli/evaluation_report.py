"""The tables of ``pilotfish evaluate-draft``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.runtime.draft_evaluation import NUM_POSITIONS

from .console import out, show, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.draft_evaluation import DraftScores, PassCosts
    from pilotfish.runtime.shape_evaluation import SourceScores


def show_shapes(bundle: str, source: str, scores: Sequence[SourceScores]) -> None:
    """Chains against trees by category, then acceptance by depth of every shape and of the best one by category."""
    whole = scores[-1]
    header = ("category", "prompts", *(shape.shape for shape in whole.shapes))
    rows = [
        (
            item.category,
            str(item.num_prompts),
            *(f"{shape.acceptance_length:.2f} ({shape.speedup:.2f}x)" for shape in item.shapes),
        )
        for item in scores
    ]
    out().print(table(f"{bundle}: {source}, tokens a round, and speed against plain by calibrated costs", header, rows))
    depth = max(len(shape.by_position) for item in scores for shape in item.shapes)
    header = ("shape", "category", "accepted", *(f"depth {level}" for level in range(1, depth + 1)))
    best = whole.best.shape
    lines = [(shape, whole.category) for shape in whole.shapes]
    lines += [(shape, item.category) for item in scores[:-1] for shape in item.shapes if shape.shape == best]
    rows = [
        (shape.shape, category, f"{shape.acceptance_rate:.0%}", *_rates(shape.by_position, depth))
        for shape, category in lines
    ]
    out().print(table(f"{bundle}: {source}, acceptance by depth, where the depth before was accepted", header, rows))
    speed = f"{whole.best.tokens_per_s:.1f} tokens/s, {whole.best.speedup:.2f} x plain"
    show(f"best {source} over all prompts: {best}, {speed}")


def _rates(by_position: Sequence[float], depth: int) -> tuple[str, ...]:
    return tuple(f"{rate:.0%}" for rate in by_position) + ("",) * (depth - len(by_position))


def show_comparison(compared: Sequence[tuple[str, str, Sequence[SourceScores]]]) -> None:
    """The best shape of every source of every bundle."""
    rows = []
    for bundle, source, scores in compared:
        best = scores[-1].best
        first = f"{best.by_position[0]:.1%}" if best.by_position else ""
        speed = (f"{best.acceptance_length:.2f}", f"{best.tokens_per_s:.1f}", f"{best.speedup:.2f}")
        rows.append((bundle, source, best.shape, first, *speed))
    header = ("bundle", "source", "best shape", "depth 1", "tokens a round", "tokens/s", "predicted speed-up")
    out().print(table("comparison", header, rows))


def show_draft(bundle: str, scores: Sequence[DraftScores], costs: PassCosts) -> None:
    """Acceptance of a draft model token by token, and all chains, replayed."""
    positions = [f"token {position}" for position in range(1, NUM_POSITIONS + 1)]
    header = ("category", "prompts", "tokens", "agreement", "min(p, q)", *positions)
    rows = [
        (
            item.category,
            str(item.num_prompts),
            str(item.num_tokens),
            f"{item.agreement:.1%}",
            f"{item.overlap:.1%}",
            *(f"{rate:.0%}" for rate in item.by_position),
        )
        for item in scores
    ]
    out().print(table(f"{bundle}: acceptance by drafted token, where the ones before were accepted", header, rows))
    chains = scores[-1].chains
    header = ("category", *(f"K = {chain.chain}" for chain in chains))
    rows = [
        (item.category, *(f"{chain.acceptance_length:.2f} ({chain.speedup:.2f}x)" for chain in item.chains))
        for item in scores
    ]
    out().print(table("tokens a round, and predicted speed against plain decoding", header, rows))
    best = max(chains, key=lambda chain: chain.speedup)
    show(
        f"draft {costs.first_draft_ms:.2f} ms for a round's first token and {costs.draft_ms:.2f} ms for a further one, "
        f"target {costs.verify_ms[1]:.2f} ms; best over all prompts: K = {best.chain}, "
        f"{best.tokens_per_s:.1f} tokens/s, {best.speedup:.2f} x plain"
    )
