"""``pilotfish chat``: a conversation, streamed; also with piped input."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.bindings import ContextFullError, InvalidArgumentError
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
    LogitBias,
    LookupStore,
    MaxContext,
    MaxNewTokens,
    MemoryBudget,
    MinP,
    NoRepeatNgramSize,
    PenaltyWindow,
    PresencePenalty,
    RepetitionPenalty,
    Seed,
    Source,
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
from .console import note, note_device
from .interruptible import interruptible
from .run import print_events, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pilotfish.runtime.results import Stats
    from pilotfish.runtime.token_stream import TokenStream

_HELP = (
    "/system TEXT sets the system message, /reset forgets the conversation, /stats shows numbers, "
    "Ctrl-C ends an answer, Ctrl-D the conversation"
)
System = Annotated[str | None, typer.Option(help="System message to begin with.")]
DropOldest = Annotated[
    bool, typer.Option("--drop-oldest", help="When the context is full, forget the oldest turns instead of stopping.")
]


class Conversation:
    """The messages so far, and the numbers of the last answer."""

    def __init__(self, engine: Engine, options: GenerateKeywords, system: str | None, when_full: str) -> None:
        """Start an empty conversation."""
        self._engine = engine
        self._options = options
        self._system = system
        self._when_full = when_full
        self._messages: list[dict[str, str]] = []
        self._stats: Stats | None = None

    def handle(self, line: str) -> None:
        """Obey a command or answer a message."""
        command, _, argument = line.partition(" ")
        if command == "/reset":
            self._messages.clear()
            note("conversation forgotten")
        elif command == "/system":
            self._system = argument or None
            note("system message set" if argument else "system message removed")
        elif command == "/stats":
            note(summary(self._stats) if self._stats else "nothing generated yet")
        elif command.startswith("/"):
            note(f"unknown command {command}: {_HELP}")
        elif line.strip():
            self._answer(line)

    def _answer(self, line: str) -> None:
        system = [{"role": "system", "content": self._system}] if self._system else []
        messages = [*self._messages, {"role": "user", "content": line}]
        try:
            stream = self._engine.stream_chat(system + messages, when_full=self._when_full, **self._options)
        except (ContextFullError, InvalidArgumentError) as error:
            note(f"{error}: /reset starts anew")
            return
        with stream, _interrupt_cancels(stream):
            print_events(interruptible(stream))
            result = stream.result()
        if result.finish_reason in ("cancelled", "context"):
            note(f"({result.finish_reason})")
        if result.num_dropped_messages:
            note(f"({result.num_dropped_messages} oldest messages forgotten)")
        answer = {"role": "assistant", "content": result.text}
        self._messages = [*messages[result.num_dropped_messages :], answer]
        self._stats = result.stats


def chat(
    bundle: Bundle,
    *,
    system: System = None,
    drop_oldest: DropOldest = False,
    max_new_tokens: MaxNewTokens = 512,
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
    device: Device = "cpu",
    threads: Threads = None,
    memory_budget: MemoryBudget = None,
    max_context: MaxContext = None,
    calibration: Calibration = "kept",
    lookup_store: LookupStore = None,
) -> None:
    """Chat with a bundle; answers go to stdout, one input line is one message."""
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
        conversation = Conversation(engine, options, system, "drop_oldest" if drop_oldest else "error")
        if sys.stdin.isatty():
            _talk(conversation)
        else:
            for line in sys.stdin:
                conversation.handle(line.rstrip("\n"))


def _talk(conversation: Conversation) -> None:
    """Input with a prompt sign and line editing, until the end of input. Ctrl-C only gives a new line."""
    import readline  # noqa: F401, PLC0415 - importing it gives input() line editing, wanted on terminals only

    note(_HELP)
    while _handle_one(conversation):
        pass


def _handle_one(conversation: Conversation) -> bool:
    """False at the end of input."""
    try:
        conversation.handle(input("> "))
    except KeyboardInterrupt:
        note("")
    except EOFError:
        note("")
        return False
    return True


@contextlib.contextmanager
def _interrupt_cancels(stream: TokenStream) -> Iterator[None]:
    """Ctrl-C ends this answer, not the conversation."""
    previous = signal.signal(signal.SIGINT, lambda *_: stream.cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
