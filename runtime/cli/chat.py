"""``pilotfish chat``: a conversation, streamed; also with piped input."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.bindings import BundleFileMissingError, ContextFullError, InvalidArgumentError, limits
from pilotfish.bindings.operating_system import edit_input_lines
from pilotfish.runtime.options import GenerateOptions
from pilotfish.runtime.speculation import DEFAULT_ACCEPTANCE

from .arguments import Acceptance, Bundle, DraftTokens, MaxNewTokens, Source
from .chat_session import ChatState, SessionFile, load_chat, save_chat
from .console import note, note_device, stdin_lines
from .draft_colours import DraftColours, ShowDrafts, print_events
from .flags import EngineFlags, LearningFlags, SamplingFlags, TreeFlags, with_groups
from .interruptible import interrupt_cancels, interruptible
from .loading import open_engine
from .run import summary

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.runtime.engine import Engine
    from pilotfish.runtime.results import Stats

EXIT_LINE_FAILED = 2
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

    def __init__(
        self, engine: Engine, options: dict[str, Any], state: ChatState, when_full: str, session: Path | None
    ) -> None:
        """Go on with a conversation, which may be empty, and save it to a file, if there is one."""
        self._engine = engine
        self._options = options
        self._state = state
        self._when_full = when_full
        self._session = session
        self._is_saved = False
        self._stats: Stats | None = None
        self.has_failed = False
        """Whether a line was no message that could be answered, and no command."""

    def handle(self, line: str) -> None:
        """Obey a command or answer a message."""
        command, _, argument = line.partition(" ")
        if command == "/reset":
            self._change(ChatState(self._state.system))
            note("conversation forgotten")
        elif command == "/system":
            self._change(dataclasses.replace(self._state, system=argument or None))
            note("system message set" if argument else "system message removed")
        elif command == "/stats":
            note(summary(self._stats) if self._stats else "nothing generated yet")
        elif command.startswith("/"):
            self.has_failed = True
            note(f"unknown command {command}: {_HELP}")
        elif line.strip():
            self._answer(line)

    def save(self) -> None:
        """Write the session's file, if there is one and it lacks something."""
        if self._session is not None and not self._is_saved:
            save_chat(self._engine, self._session, self._state)
            self._is_saved = True

    def _change(self, state: ChatState) -> None:
        self._state = state
        self._is_saved = False

    def _answer(self, line: str) -> None:
        system = [{"role": "system", "content": self._state.system}] if self._state.system else []
        messages = [*self._state.messages, {"role": "user", "content": line}]
        try:
            stream = self._engine.stream_chat(system + messages, when_full=self._when_full, **self._options)
        except (ContextFullError, InvalidArgumentError) as error:
            self.has_failed = True
            note(f"{error}: /reset starts anew")
            return
        with stream, interrupt_cancels(stream):
            print_events(interruptible(stream), DraftColours(stream) if self._options["explain"] else None)
            result = stream.result()
        if result.finish_reason in ("cancelled", "context"):
            note(f"({result.finish_reason})")
        if result.num_dropped_messages:
            note(f"({result.num_dropped_messages} oldest messages forgotten)")
        kept = messages[result.num_dropped_messages :]
        ids = [*self._engine.encode_chat(system + kept), *result.token_ids] if self._session else []
        self._change(ChatState(self._state.system, [*kept, {"role": "assistant", "content": result.text}], ids))
        self._stats = result.stats
        self._save_answer()

    def _save_answer(self) -> None:
        """The conversation goes on where it cannot be saved."""
        try:
            self.save()
        except BundleFileMissingError as error:
            self.has_failed = True
            note(f"the conversation is not saved: {error}")


@with_groups
def chat(
    bundle: Bundle,
    *,
    system: System = None,
    session: SessionFile = None,
    drop_oldest: DropOldest = False,
    max_new_tokens: MaxNewTokens = limits.GENERATE.max_new_tokens,
    source: Source = "auto",
    num_draft_tokens: DraftTokens = None,
    tree: TreeFlags,
    sampling: SamplingFlags,
    show_drafts: ShowDrafts = False,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
    engine_flags: EngineFlags,
    learning: LearningFlags,
) -> None:
    """Chat with a bundle: one input line is one message; exit code 2 if one that was piped in failed."""
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "source": source,
        "num_draft_tokens": num_draft_tokens,
        **tree.keywords(),
        **sampling.keywords(),
        "explain": show_drafts,
    }
    GenerateOptions(**options)  # what is wrong with them shows before the bundle loads
    note_device(engine_flags.device)
    opening: dict[str, Any] = {"acceptance": acceptance, "max_draft_tokens": tree.room(limits.ENGINE.max_draft_tokens)}
    with open_engine(bundle, **engine_flags.keywords(), **learning.keywords(), **opening) as engine:
        engine.stream([0], **options).close()  # what this bundle cannot do shows before the first message
        state = (load_chat(engine, session) if session else None) or ChatState()
        if system is not None:
            state.system = system
        conversation = Conversation(engine, options, state, "drop_oldest" if drop_oldest else "error", session)
        if sys.stdin.isatty():
            _talk(conversation)
        else:
            for line in stdin_lines():
                conversation.handle(line)
        conversation.save()
        if not sys.stdin.isatty() and conversation.has_failed:
            raise typer.Exit(EXIT_LINE_FAILED)


def _talk(conversation: Conversation) -> None:
    """Input with a prompt sign and line editing, until the end of input. Ctrl-C only gives a new line."""
    edit_input_lines()
    note(_HELP)
    while _handle_one(conversation):
        pass


def _handle_one(conversation: Conversation) -> bool:
    """False at the end of input."""
    try:
        conversation.handle(input("> " if sys.stdout.isatty() else ""))
    except KeyboardInterrupt:
        note("")
    except EOFError:
        note("")
        return False
    return True
