"""``pilotfish run``: one prompt, streamed to stdout."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.bindings import InvalidArgumentError, limits
from pilotfish.runtime.files import read_text
from pilotfish.runtime.options import GenerateOptions
from pilotfish.runtime.speculation import DEFAULT_ACCEPTANCE

from .arguments import (
    Acceptance,
    Bundle,
    DraftTokens,
    IgnoreEos,
    Json,
    Logprobs,
    MaxNewTokens,
    MinNewTokens,
    Source,
    Stop,
    StopId,
)
from .console import note, note_device, notes, read_stdin, table, write_json
from .draft_colours import DraftColours, ShowDrafts, print_events
from .flags import EngineFlags, LearningFlags, SamplingFlags, TreeFlags, with_groups
from .interruptible import interrupt_cancels, interruptible
from .loading import open_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.engine import Engine
    from pilotfish.runtime.results import Round, Stats
    from pilotfish.runtime.token_stream import TokenStream

EXIT_INTERRUPTED = 130  # what shells report of a process that Ctrl-C ended
Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt; -: read it from stdin.")]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without the bundle's chat template.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show on stderr what each round was to draft, and what came of it.")
]
JsonSchema = Annotated[str | None, typer.Option(metavar="FILE", help="The text is JSON of the schema in this file.")]
Regex = Annotated[str | None, typer.Option(help="The text matches this regular expression.")]
Grammar = Annotated[str | None, typer.Option(metavar="FILE", help="The text is of the Lark grammar in this file.")]


@dataclass(frozen=True)
class EndFlags:
    """Where the text ends."""

    min_new_tokens: MinNewTokens = limits.GENERATE.min_new_tokens
    stop: Stop = None
    stop_id: StopId = None
    ignore_eos: IgnoreEos = bool(limits.GENERATE.ignore_eos)

    def keywords(self) -> dict[str, Any]:
        """As Engine.generate takes them."""
        return {
            "min_new_tokens": self.min_new_tokens,
            "stop": self.stop or (),
            "stop_ids": self.stop_id or (),
            "ignore_eos": self.ignore_eos,
        }


@dataclass(frozen=True)
class StructureFlags:
    """What the text must parse as."""

    json_schema: JsonSchema = None
    regex: Regex = None
    grammar: Grammar = None

    def keywords(self) -> dict[str, Any]:
        """As Engine.generate takes them; InvalidArgumentError if a file cannot be read."""
        return {
            "json_schema": read_text("--json-schema", self.json_schema) if self.json_schema is not None else None,
            "regex": self.regex,
            "grammar": read_text("--grammar", self.grammar) if self.grammar is not None else None,
        }


@with_groups
def run(
    bundle: Bundle,
    prompt: Prompt,
    *,
    raw: Raw = False,
    max_new_tokens: MaxNewTokens = limits.GENERATE.max_new_tokens,
    source: Source = "auto",
    num_draft_tokens: DraftTokens = None,
    tree: TreeFlags,
    sampling: SamplingFlags,
    ends: EndFlags,
    logprobs: Logprobs = limits.GENERATE.num_top_logprobs,
    structure: StructureFlags,
    explain: Explain = False,
    show_drafts: ShowDrafts = False,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
    engine_flags: EngineFlags,
    learning: LearningFlags,
    json_file: Json = None,
) -> None:
    """Answer a prompt, streamed to stdout; Ctrl-C ends it."""
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "source": source,
        "num_draft_tokens": num_draft_tokens,
        "logprobs": logprobs,
        "explain": explain or show_drafts,
    }
    for group in (tree, sampling, ends, structure):
        options |= group.keywords()
    GenerateOptions(**options)  # what is wrong with them shows before the bundle loads
    if logprobs and json_file is None:
        raise InvalidArgumentError(f"--logprobs is {logprobs}, but only --json FILE shows them: give it too")
    text = read_stdin() if prompt == "-" else prompt
    if not text.strip() and not raw:
        raise InvalidArgumentError("the prompt is empty: give text, or - for what standard input has")
    note_device(engine_flags.device)
    opening: dict[str, Any] = {"acceptance": acceptance, "max_draft_tokens": tree.room(limits.ENGINE.max_draft_tokens)}
    with (
        open_engine(bundle, **engine_flags.keywords(), **learning.keywords(), **opening) as engine,
        _open(engine, text, raw, options) as stream,
        interrupt_cancels(stream),
    ):
        print_events(interruptible(stream), DraftColours(stream) if show_drafts else None)
        result = stream.result()
    if explain:
        explain_rounds(result.rounds)
    note(summary(result.stats))
    if result.finish_reason == "dead_end":
        note("the text is incomplete: nothing could follow it under the schema, expression or grammar")
    write_json(json_file, dataclasses.asdict(result) | {"acceptance_rate": result.stats.acceptance_rate})
    if result.finish_reason == "cancelled":
        raise typer.Exit(EXIT_INTERRUPTED)


def _open(engine: Engine, text: str, raw: bool, options: dict[str, Any]) -> TokenStream:  # noqa: FBT001 - a flag
    if raw:
        return engine.stream(text, **options)
    if engine.manifest.chat_template is None:
        note("the bundle has no chat template: the prompt is continued as it is")
        return engine.stream(text, **options)
    return engine.stream_chat([{"role": "user", "content": text}], **options)


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
