"""``pilotfish run``: one prompt, streamed to stdout."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.runtime.draft_tree import room_for
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.engine_options import DEFAULT_MAX_DRAFT_TOKENS
from pilotfish.runtime.options import GenerateKeywords

from .arguments import (
    Bundle,
    Calibration,
    Device,
    DraftTokens,
    FrequencyPenalty,
    IgnoreEos,
    Json,
    LogitBias,
    Logprobs,
    LookupStore,
    MaxContext,
    MaxNewTokens,
    MemoryBudget,
    MinNewTokens,
    MinP,
    NoRepeatNgramSize,
    PenaltyWindow,
    PresencePenalty,
    RepetitionPenalty,
    Seed,
    Source,
    Stop,
    StopId,
    Temperature,
    Threads,
    TopK,
    TopP,
    Tree,
    TreeDepth,
    TreeNodes,
    TypicalP,
    parse_logit_bias,
)
from .console import note, note_device, notes, read_text, table, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pilotfish.runtime.results import Event, Round, Stats

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt; -: read it from stdin.")]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without the bundle's chat template.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show on stderr what each round was to draft, and what came of it.")
]
JsonSchema = Annotated[str | None, typer.Option(metavar="FILE", help="The text is JSON of the schema in this file.")]
Regex = Annotated[str | None, typer.Option(help="The text matches this regular expression.")]
Grammar = Annotated[str | None, typer.Option(metavar="FILE", help="The text is of the Lark grammar in this file.")]


def run(
    bundle: Bundle,
    prompt: Prompt,
    *,
    raw: Raw = False,
    max_new_tokens: MaxNewTokens = 256,
    source: Source = "auto",
    draft_tokens: DraftTokens = None,
    tree: Tree = None,
    tree_nodes: TreeNodes = None,
    tree_depth: TreeDepth = None,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    typical_p: TypicalP = 1.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    penalty_window: PenaltyWindow = 0,
    no_repeat_ngram_size: NoRepeatNgramSize = 0,
    logit_bias: LogitBias = None,
    seed: Seed = None,
    min_new_tokens: MinNewTokens = 0,
    stop: Stop = None,
    stop_id: StopId = None,
    ignore_eos: IgnoreEos = False,
    logprobs: Logprobs = 0,
    json_schema: JsonSchema = None,
    regex: Regex = None,
    grammar: Grammar = None,
    explain: Explain = False,
    device: Device = "cpu",
    threads: Threads = None,
    memory_budget: MemoryBudget = None,
    max_context: MaxContext = None,
    calibration: Calibration = "kept",
    lookup_store: LookupStore = None,
    json_file: Json = None,
) -> None:
    """Answer a prompt, or continue it with --raw, and stream the text to stdout."""
    text = sys.stdin.read() if prompt == "-" else prompt
    options = GenerateKeywords(
        max_new_tokens=max_new_tokens,
        source=source,
        num_draft_tokens=draft_tokens,
        tree=tree,
        tree_nodes=tree_nodes,
        tree_depth=tree_depth,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        penalty_window=penalty_window,
        no_repeat_ngram_size=no_repeat_ngram_size,
        logit_bias=parse_logit_bias(logit_bias),
        seed=seed,
        min_new_tokens=min_new_tokens,
        stop=stop or (),
        stop_ids=stop_id or (),
        ignore_eos=ignore_eos,
        logprobs=logprobs,
        json_schema=read_text("--json-schema", json_schema) if json_schema else None,
        regex=regex,
        grammar=read_text("--grammar", grammar) if grammar else None,
        explain=explain,
    )
    note_device(device)
    with Engine(
        bundle,
        device=device,
        threads=threads,
        memory_budget=memory_budget,
        max_context=max_context,
        calibration=calibration,
        lookup_store=lookup_store,
        max_draft_tokens=max(DEFAULT_MAX_DRAFT_TOKENS, room_for(tree, tree_nodes)),
    ) as engine:
        if raw or engine.manifest.chat_template is None:
            stream = engine.stream(text, **options)
        else:
            stream = engine.stream_chat([{"role": "user", "content": text}], **options)
        with stream:
            print_events(stream)
            result = stream.result()
    if explain:
        explain_rounds(result.rounds)
    note(summary(result.stats))
    content = dataclasses.asdict(result) | {"acceptance_rate": result.stats.acceptance_rate}
    write_json(json_file, content)


def explain_rounds(rounds: Sequence[Round]) -> None:
    """Write a table of the rounds to stderr."""
    rows = [
        (
            str(index),
            _planned(each),
            f"{each.expected_tokens:.2f}",
            f"{1e3 * each.expected_seconds:.2f}",
            str(each.num_passes),
            str(each.num_verified),
            str(each.num_tokens),
        )
        for index, each in enumerate(rounds, 1)
    ]
    header = ("round", "drafts", "tokens expected", "ms expected", "passes", "verified", "tokens")
    notes().print(table("rounds", header, rows))


def _planned(each: Round) -> str:
    parts = [f"{each.num_lookup} by lookup"] if each.num_lookup else []
    for number, name in ((each.num_model, "draft model"), (each.num_head, "head")):
        shape = f" in a tree of up to {each.num_levels} levels" if number > each.num_levels else ""
        parts += [f"up to {number} by the {name}{shape}"] if number else []
    return (" and ".join(parts) or "plain") + ("" if each.reason == "best" else f" ({each.reason})")


def print_events(events: Iterable[Event]) -> None:
    """Write the text to stdout as it arrives, then a line's end."""
    for event in events:
        sys.stdout.write(event.text)
        sys.stdout.flush()
    sys.stdout.write("\n")
    sys.stdout.flush()


def summary(stats: Stats) -> str:
    """One line of numbers about a generation."""
    num_reused = stats.num_prompt_tokens - stats.num_prefilled_target
    reused = f" ({num_reused} of them known)" if num_reused else ""
    line = (
        f"{stats.num_prompt_tokens} prompt tokens{reused} in {stats.prefill_seconds:.2f} s, "
        f"{stats.num_new_tokens} new tokens at {stats.tokens_per_second:.1f} tokens/s"
    )
    if stats.num_drafted:
        line += f", {stats.acceptance_rate:.0%} of the draft accepted, {stats.acceptance_length:.2f} tokens a round"
    if stats.num_lookup_drafted:
        others = ((stats.num_model_accepted, "draft model"), (stats.num_head_accepted, "head"))
        parts = [f"{number} by the {name}" for number, name in others if number] or ["none by another"]
        line += f" ({stats.num_lookup_accepted} by lookup, {', '.join(parts)})"
    if stats.lossy:
        line += " (LOSSY: typical acceptance)"
    return line
