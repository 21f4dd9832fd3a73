"""``pilotfish evaluate-draft``: which bundle's draft or head is worth shipping, by acceptance and measured costs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from pilotfish.bindings import UnsupportedError
from pilotfish.runtime.bench_prompts import prompts_from_file
from pilotfish.runtime.draft_evaluation import ALL, NUM_POSITIONS, evaluate
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.head_evaluation import TREE_TOKENS, evaluate_head
from pilotfish.runtime.machine import describe_machine
from pilotfish.runtime.manifest import read_manifest

from .arguments import Json
from .console import note_device, notes, out, show, table, write_json
from .flags import EngineFlags, with_groups

if TYPE_CHECKING:
    from pilotfish.runtime.draft_evaluation import DraftScores, PassCosts
    from pilotfish.runtime.head_evaluation import HeadScores

SCHEMA = "pilotfish-evaluate-draft-1"
Bundles = Annotated[list[str], typer.Argument(metavar="BUNDLE...", help="Bundles of the same target to compare.")]
Prompts = Annotated[str, typer.Option(metavar="FILE", help='JSON lines with "prompt" and "category".')]
NewTokens = Annotated[int, typer.Option(min=2, help="Tokens of an answer at most.")]
PassRepeats = Annotated[int, typer.Option(min=1, help="Repeats of each single pass that is timed.")]


@with_groups
def evaluate_draft(
    bundles: Bundles,
    *,
    prompts: Prompts,
    new_tokens: NewTokens = 128,
    pass_repeats: PassRepeats = 20,
    engine_flags: EngineFlags,
    json_file: Json = None,
) -> None:
    """Judge drafts: acceptance by position and category, and the speed that the measured passes promise."""
    for bundle in bundles:
        read_manifest(Path(bundle))  # a wrong path shows before the others are evaluated
    reports = []
    for bundle in bundles:
        note_device(engine_flags.device)
        with Engine(bundle, **engine_flags.keywords(), max_draft_tokens=max(NUM_POSITIONS, TREE_TOKENS)) as engine:
            reports.append(_evaluate(engine, bundle, prompts, new_tokens, pass_repeats))
    with_draft = [report for report in reports if report["categories"]]
    if len(with_draft) > 1:
        _show_comparison(with_draft)
    write_json(json_file, {"schema": SCHEMA, "machine": describe_machine(engine_flags.device), "bundles": reports})


def _evaluate(engine: Engine, bundle: str, prompts: str, new_tokens: int, pass_repeats: int) -> dict[str, Any]:
    has_draft, has_head = engine.info.has_draft, engine.info.has_head
    if not has_draft and not has_head:
        raise UnsupportedError(f"{bundle} has no draft and no head: export one with pilotfish export --draft or --head")
    chosen = prompts_from_file(engine, prompts)
    report: dict[str, Any] = {"path": bundle, "categories": [], "head": None}
    with Progress(console=notes(), transient=True) as progress:
        task = progress.add_task(f"answering, {bundle}", total=len(chosen) * (has_draft + has_head))
        if has_draft:
            scores, costs = evaluate(engine, chosen, new_tokens, pass_repeats, lambda: progress.advance(task))
        if has_head:
            head_scores = evaluate_head(engine, chosen, new_tokens, lambda: progress.advance(task))
    if has_draft:
        _show(bundle, scores, costs)
        report |= _numbers(bundle, scores, costs)
    if has_head:
        _show_head(bundle, head_scores)
        report["head"] = [dataclasses.asdict(item) for item in head_scores]
    return report


def _show_head(bundle: str, scores: tuple[HeadScores, ...]) -> None:
    header = ("category", "prompts", *(shape.shape for shape in scores[-1].shapes))
    rows = [
        (
            item.category,
            str(item.num_prompts),
            *(f"{shape.acceptance_length:.2f} ({shape.speedup:.2f}x)" for shape in item.shapes),
        )
        for item in scores
    ]
    out().print(table(f"{bundle}: head, tokens a round, and speed against plain by calibrated costs", header, rows))
    best = max(scores[-1].shapes, key=lambda shape: shape.speedup)
    depths = ", ".join(f"{rate:.0%}" for rate in best.by_position)
    show(f"best over all prompts: {best.shape}, {best.tokens_per_s:.1f} tokens/s; accepted by depth: {depths}")


def _show(bundle: str, scores: tuple[DraftScores, ...], costs: PassCosts) -> None:
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


def _numbers(bundle: str, scores: tuple[DraftScores, ...], costs: PassCosts) -> dict[str, Any]:
    return {
        "path": bundle,
        "first_draft_ms": costs.first_draft_ms,
        "draft_ms": costs.draft_ms,
        "verify_ms": {str(rows): time for rows, time in costs.verify_ms.items()},
        "categories": [dataclasses.asdict(item) for item in scores],
    }


def _show_comparison(reports: list[dict[str, Any]]) -> None:
    rows = []
    for report in reports:
        whole = next(item for item in report["categories"] if item["category"] == ALL)
        best = max(whole["chains"], key=lambda chain: chain["speedup"])
        rows.append(
            (
                report["path"],
                f"{whole['agreement']:.1%}",
                f"{report['draft_ms']:.2f}",
                str(best["chain"]),
                f"{best['acceptance_length']:.2f}",
                f"{best['speedup']:.2f}",
            )
        )
    header = ("bundle", "agreement", "draft, ms", "best K", "tokens a round", "predicted speed-up")
    out().print(table("comparison", header, rows))
