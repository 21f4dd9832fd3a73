"""``pilotfish evaluate-draft``: which bundle's draft or head is worth shipping, by acceptance and measured costs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.bindings import InvalidArgumentError, UnsupportedError
from pilotfish.runtime.bench import drafting_models
from pilotfish.runtime.bench_passes import context_of_all
from pilotfish.runtime.bench_prompts import prompts_from_file
from pilotfish.runtime.draft_evaluation import ALL, NUM_POSITIONS, evaluate
from pilotfish.runtime.machine import describe_machine
from pilotfish.runtime.manifest import read_manifest
from pilotfish.runtime.option_checks import is_greedy
from pilotfish.runtime.options import GenerateKeywords, GenerateOptions
from pilotfish.runtime.report.drafts_page import Candidate, advice, drafts_page
from pilotfish.runtime.shape_evaluation import MOST_NODES, evaluate_shapes

from .arguments import Json
from .bars import passing_bar
from .console import note, note_device, show
from .draft_trials import show_kept_trials
from .evaluation_report import show_comparison, show_draft, show_shapes
from .flags import ChoiceFlags, EngineFlags, with_groups
from .loading import open_engine
from .pages import PageFlags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.bench import Prompt
    from pilotfish.runtime.engine import Engine
    from pilotfish.runtime.shape_evaluation import SourceScores

SCHEMA = "pilotfish-evaluate-draft-3"
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
    pages: PageFlags,
    json_file: Json = None,
) -> None:
    """Compare drafts and heads: which one is worth shipping.

    Acceptance by position, shape and category, and the speed that measured costs promise. With a temperature all
    shapes are generated; greedy chains of a draft model are replayed too, token by token.
    """
    GenerateOptions(**choice.keywords())  # what is wrong with them shows before a bundle loads
    for bundle in bundles:
        manifest = read_manifest(bundle)  # what is wrong with one shows before the others are evaluated
        if len(manifest.models) == 1 and manifest.head is None:
            raise UnsupportedError(
                f"{bundle} has no draft and no head: export one with pilotfish export --draft or --head"
            )
    room = max(NUM_POSITIONS, MOST_NODES)
    pages.check(json_file, [prompts])
    reports: list[dict[str, Any]] = []
    candidates: list[Candidate] = []
    for bundle in bundles:
        note_device(engine_flags.device)
        with open_engine(bundle, **engine_flags.keywords(), max_draft_tokens=room) as engine:
            common = choice.keywords() | GenerateKeywords(max_new_tokens=new_tokens)
            report, scores = _evaluate(engine, bundle, prompts, common, pass_repeats)
            own_bytes = engine.info.total_bytes - engine.info.program_bytes
            candidates += [
                Candidate(bundle, source, _formats(engine, source), own_bytes, found)
                for source, found in scores.items()
            ]
        reports.append(report)
    machine = describe_machine(engine_flags.device)
    content = {"schema": SCHEMA, "machine": machine, "bundles": reports, "advice": advice(candidates)}
    device = str(machine.get("gpu", machine["cpu"]))
    pages.deliver(lambda: drafts_page(candidates, device, prompts), json_file, content, lambda: _show(candidates))


def _show(candidates: Sequence[Candidate]) -> None:
    if len(candidates) > 1:
        show_comparison([(each.bundle, each.source, each.scores) for each in candidates])
    show(advice(candidates))


def _formats(engine: Engine, source: str) -> str:
    """Of the target's weights and of the draft's or head's."""
    target = engine.manifest.models[0].formats
    head = engine.manifest.head
    if source == "head" and head is not None:
        return f"{_format_text(target)} and {head.format}"
    return f"{_format_text(target)} and {_format_text(engine.manifest.models[1].formats)}"


def _format_text(formats: dict[str, str]) -> str:
    return "/".join(dict.fromkeys(formats.values()))


def _prompts(engine: Engine, path: str, new_tokens: int) -> Sequence[Prompt]:
    """The prompts that leave room for an answer in the contexts of all models; the others are counted."""
    chosen = prompts_from_file(engine, path, new_tokens, context_of_all(engine))
    if any(prompt.category == ALL for prompt in chosen.prompts):
        raise InvalidArgumentError(f"{path} has the category {ALL!r}, which is that of all prompts: name it otherwise")
    if chosen.num_too_long:
        note(f"{chosen.num_too_long} prompt(s) of {path} left out: they leave no room for {new_tokens} tokens")
    return chosen.prompts


def _evaluate(
    engine: Engine, bundle: str, prompts: str, common: GenerateKeywords, pass_repeats: int
) -> tuple[dict[str, Any], dict[str, tuple[SourceScores, ...]]]:
    """The numbers for --json, and the scores of each source in all its shapes."""
    show_kept_trials(engine.manifest, bundle)
    sources = drafting_models(engine.info)
    chosen = _prompts(engine, prompts, common["max_new_tokens"])
    report: dict[str, Any] = {"path": bundle, "categories": [], "draft": None, "head": None}
    scores = {}
    replays = "draft" in sources and is_greedy(common["temperature"])
    with passing_bar() as progress:
        task = progress.add_task("answering", total=len(chosen) * (len(sources) + replays))
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
