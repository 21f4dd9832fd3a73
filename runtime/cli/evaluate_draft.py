"""``pilotfish evaluate-draft``: which bundle's draft or head is worth shipping, by acceptance and measured costs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.bindings import UnsupportedError
from pilotfish.runtime.bench_prompts import prompts_from_file
from pilotfish.runtime.draft_evaluation import NUM_POSITIONS, evaluate
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.machine import describe_machine
from pilotfish.runtime.manifest import read_manifest
from pilotfish.runtime.option_checks import is_greedy
from pilotfish.runtime.options import GenerateKeywords, GenerateOptions
from pilotfish.runtime.shape_evaluation import MOST_NODES, evaluate_shapes

from .arguments import Json
from .bars import passing_bar
from .console import note_device, write_json
from .evaluation_report import show_comparison, show_draft, show_shapes
from .flags import ChoiceFlags, EngineFlags, with_groups

if TYPE_CHECKING:
    from pilotfish.runtime.shape_evaluation import SourceScores

SCHEMA = "pilotfish-evaluate-draft-2"
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
    choice: ChoiceFlags,
    engine_flags: EngineFlags,
    json_file: Json = None,
) -> None:
    """Compare drafts and heads: which one is worth shipping.

    Acceptance by position, shape and category, and the speed that measured costs promise. With a temperature all
    shapes are generated; greedy chains of a draft model are replayed too, token by token.
    """
    GenerateOptions(**choice.keywords())  # what is wrong with them shows before a bundle loads
    for bundle in bundles:
        read_manifest(bundle)  # a wrong path shows before the others are evaluated
    room = max(NUM_POSITIONS, MOST_NODES)
    reports, compared = [], []
    for bundle in bundles:
        note_device(engine_flags.device)
        with Engine(bundle, **engine_flags.keywords(), max_draft_tokens=room) as engine:
            common = choice.keywords() | GenerateKeywords(max_new_tokens=new_tokens)
            report, scores = _evaluate(engine, bundle, prompts, common, pass_repeats)
        reports.append(report)
        compared += [(bundle, source, found) for source, found in scores.items()]
    if len(compared) > 1:
        show_comparison(compared)
    write_json(json_file, {"schema": SCHEMA, "machine": describe_machine(engine_flags.device), "bundles": reports})


def _evaluate(
    engine: Engine, bundle: str, prompts: str, common: GenerateKeywords, pass_repeats: int
) -> tuple[dict[str, Any], dict[str, tuple[SourceScores, ...]]]:
    """The numbers for --json, and the scores of each source in all its shapes."""
    sources = [name for name, has in (("draft", engine.info.has_draft), ("head", engine.info.has_head)) if has]
    if not sources:
        raise UnsupportedError(f"{bundle} has no draft and no head: export one with pilotfish export --draft or --head")
    chosen = prompts_from_file(engine, prompts)
    report: dict[str, Any] = {"path": bundle, "categories": [], "draft": None, "head": None}
    scores = {}
    replays = "draft" in sources and is_greedy(common["temperature"])
    with passing_bar() as progress:
        task = progress.add_task(f"answering, {bundle}", total=len(chosen) * (len(sources) + replays))
        if replays:
            new_tokens = common["max_new_tokens"]
            replayed, costs = evaluate(engine, chosen, new_tokens, pass_repeats, lambda: progress.advance(task))
        for source in sources:
            scores[source] = evaluate_shapes(engine, source, chosen, common, lambda: progress.advance(task))
            report[source] = [dataclasses.asdict(item) for item in scores[source]]
    if replays:
        show_draft(bundle, replayed, costs)
        report |= {
            "first_draft_ms": costs.first_draft_ms,
            "draft_ms": costs.draft_ms,
            "verify_ms": {str(rows): time for rows, time in costs.verify_ms.items()},
            "categories": [dataclasses.asdict(item) for item in replayed],
        }
    for source, found in scores.items():
        show_shapes(bundle, source, found)
    return report, scores
