"""``pilotfish bench``: plain against speculative, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime import bench as measuring
from pilotfish.runtime.bench_prompts import fixed_prompt, prompts_from_file
from pilotfish.runtime.bench_report import SCHEMA, categories, category_details, outputs_equal, summarise
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.machine import describe_machine
from pilotfish.runtime.memory import format_bytes, peak_memory_bytes
from pilotfish.runtime.option_checks import is_greedy
from pilotfish.runtime.options import GenerateOptions
from pilotfish.runtime.speculation import DEFAULT_ACCEPTANCE, REJECTION

from .arguments import Acceptance, Bundle, DraftTokens, Json
from .bars import passing_bar
from .console import note_device, out, show, table, write_json
from .flags import ChoiceFlags, EngineFlags, TreeFlags, with_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.bench import BenchOptions, Prompt

PromptTokens = Annotated[int, typer.Option(help="Length of the built-in prompt.")]
NewTokens = Annotated[int, typer.Option(min=2, help="Tokens a generation.")]
Prompts = Annotated[
    str | None,
    typer.Option(metavar="FILE", help='JSON lines with "prompt" and "category" instead of the built-in one.'),
]
Repeats = Annotated[int, typer.Option(min=1, help="Generations a prompt and mode.")]
PassRepeats = Annotated[int, typer.Option(min=1, help="Repeats of each single pass that is timed.")]


@with_groups
def bench(
    bundle: Bundle,
    *,
    prompt_tokens: PromptTokens = 128,
    new_tokens: NewTokens = 128,
    prompts: Prompts = None,
    num_draft_tokens: DraftTokens = None,
    tree: TreeFlags,
    choice: ChoiceFlags,
    repeats: Repeats = 3,
    pass_repeats: PassRepeats = 20,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
    engine_flags: EngineFlags,
    json_file: Json = None,
) -> None:
    """Measure plain decoding beside every way to draft.

    They take turns in one run; the passes behind them are timed too.
    """
    # What is wrong with them shows before the bundle loads; a tree is measured beside num_draft_tokens.
    GenerateOptions(num_draft_tokens=num_draft_tokens)
    GenerateOptions(**tree.keywords())
    GenerateOptions(**choice.keywords())
    note_device(engine_flags.device)
    room = max(num_draft_tokens or 0, tree.room(measuring.MAX_DRAFT_TOKENS))
    with Engine(bundle, **engine_flags.keywords(), acceptance=acceptance, max_draft_tokens=room) as engine:
        chosen = prompts_from_file(engine, prompts) if prompts else fixed_prompt(engine, prompt_tokens)
        _check_room(engine, chosen, new_tokens)
        drafting = measuring.modes(engine, num_draft_tokens, tree.keywords())
        modes = {name: choice.keywords() | options for name, options in drafting.items()}
        report: dict[str, Any] = {"schema": SCHEMA, "machine": describe_machine(engine_flags.device)}
        report |= _measure(engine, chosen, measuring.BenchOptions(new_tokens, modes, repeats), pass_repeats)
        report["bundle"] = _describe_bundle(engine, bundle)
    report["settings"] = {
        "threads": report["bundle"]["threads"],
        "new_tokens": new_tokens,
        "prompt_tokens": None if prompts else prompt_tokens,
        "draft_tokens": num_draft_tokens,
        **tree.keywords(),
        **choice.keywords(),
        "acceptance": acceptance,
        "repeats": repeats,
    }
    _show(report)
    write_json(json_file, report)


def _check_room(engine: Engine, prompts: Sequence[Prompt], new_tokens: int) -> None:
    """Generations that do not end by themselves must have room for all their tokens."""
    longest = max((len(prompt.ids) for prompt in prompts if prompt.ignore_eos), default=0)
    if longest and longest + new_tokens > engine.info.max_context:
        raise InvalidArgumentError(
            f"--prompt-tokens {longest} and --new-tokens {new_tokens} do not fit the context of "
            f"{engine.info.max_context} tokens"
        )


def _measure(engine: Engine, prompts: Sequence[Prompt], options: BenchOptions, pass_repeats: int) -> dict[str, Any]:
    with passing_bar() as progress:
        task = progress.add_task("generating", total=len(options.modes) * (1 + len(prompts) * options.repeats))
        samples = measuring.measure(engine, prompts, options, lambda: progress.advance(task))
    context = max(len(prompt.ids) for prompt in prompts)
    peak = peak_memory_bytes()
    has_draft = engine.info.has_draft
    return {
        "runs": [summarise(mode, group, peak) for mode, group in samples.items()],
        "categories": categories(samples),
        "category_details": category_details(samples),
        "outputs_equal": outputs_equal(samples),
        "verify_ms": {
            str(rows): time for rows, time in measuring.verify_ms(engine, context=context, repeats=pass_repeats).items()
        },
        "draft_ms": measuring.draft_ms(engine, context=context, repeats=pass_repeats) if has_draft else None,
    }


def _describe_bundle(engine: Engine, path: str) -> dict[str, Any]:
    models = {
        model.role: {"source": model.source, "parameters": model.parameters, "formats": model.formats}
        for model in engine.manifest.models
    }
    return {"path": path, "models": models, "threads": engine.info.num_threads, "context": engine.info.max_context}


def _show(report: dict[str, Any]) -> None:
    runs = report["runs"]
    header = ("", *(run["mode"] for run in runs))
    rows = [(name, *(value(run) for run in runs)) for name, value in _RUN_ROWS.items()]
    out().print(table(report["bundle"]["path"], header, rows))
    if len(runs) > 1:
        plain = runs[0]["tokens_per_s"]["median"]
        speedups = ", ".join(
            f"{run['mode']} is {run['tokens_per_s']['median'] / plain:.2f} x plain" for run in runs[1:]
        )
        show(f"{speedups}, outputs are {_comparison(report)}")
    first = report["verify_ms"]["1"]
    passes = {f"target, rows: {num_rows}": time for num_rows, time in report["verify_ms"].items()}
    if report["draft_ms"] is not None:
        passes["draft, rows: 1"] = report["draft_ms"]
    rows = [(name, f"{time:.2f}", f"{time / first:.2f}") for name, time in passes.items()]
    out().print(table("one pass", ("", "ms", "of 1 row"), rows))
    if len(report["categories"]) > 1:
        _show_categories(report)
    machine = report["machine"]
    show(
        f"{machine['cpu']}, {report['settings']['threads']} threads, {machine['kernels']} kernels, "
        f"ONNX Runtime {machine['onnxruntime']}, peak memory {format_bytes(runs[0]['peak_memory_bytes'])}"
    )


def _comparison(report: dict[str, Any]) -> str:
    settings = report["settings"]
    if report["outputs_equal"]:
        return "the same"
    may_differ = settings["acceptance"] == REJECTION and not is_greedy(settings["temperature"])
    return "others of the same distribution, by rejection" if may_differ else "DIFFERENT"


_RUN_ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "tokens/s, median": lambda run: f"{run['tokens_per_s']['median']:.1f}",
    "tokens/s, lowest": lambda run: f"{run['tokens_per_s']['min']:.1f}",
    "tokens/s, highest": lambda run: f"{run['tokens_per_s']['max']:.1f}",
    "first token, ms": lambda run: f"{run['ttft_ms']:.1f}",
    "ms a token, median": lambda run: f"{run['tpot_ms']['p50']:.2f}",
    "ms a token, 99th percentile": lambda run: f"{run['tpot_ms']['p99']:.2f}",
    "acceptance rate": lambda run: _optional(run["acceptance_rate"], "{:.1%}"),
    "tokens a round": lambda run: _optional(run["acceptance_length"], "{:.2f}"),
    "time outside the models": lambda run: f"{run['overhead_share']:.1%}",
}


def _show_categories(report: dict[str, Any]) -> None:
    modes = [run["mode"] for run in report["runs"]]
    rows = [
        (name, f"{speeds['plain']:.1f}", *(f"{speeds[mode] / speeds['plain']:.2f} x" for mode in modes[1:]))
        for name, speeds in report["categories"].items()
    ]
    out().print(table("by category, medians", ("category", "plain tokens/s", *modes[1:]), rows))


def _optional(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
