"""The file of ``pilotfish chat --session``: the messages, and what the caches hold of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.bindings import BundleCorruptError

from .console import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.engine import Engine

_FORMAT = "pilotfish-chat 1"

SessionFile = Annotated[
    Path | None,
    typer.Option(
        "--session",
        metavar="FILE",
        help="Go on with the conversation in FILE, if it exists, and save it there after each answer.",
    ),
]


@dataclass
class ChatState:
    """What a conversation consists of."""

    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    token_ids: Sequence[int] = ()
    """Of the last prompt and its answer."""


def load_chat(engine: Engine, path: Path) -> ChatState | None:
    """The conversation in a file; None if there is no file.

    Raises:
        PilotfishError: it is of another bundle or version, damaged, or no chat.
    """
    if not path.exists() and not path.is_symlink():
        return None
    session = engine.load_session(path)
    state = _parse(session.note)
    if state is None:
        raise BundleCorruptError(f"{path}: is no session of pilotfish chat: name another file")
    state.token_ids = session.token_ids
    note(f"({len(state.messages)} messages from {path}, {session.num_cached_tokens} tokens of them cached)")
    return state


def save_chat(engine: Engine, path: Path, state: ChatState) -> None:
    """Write the file as a whole.

    Raises:
        BundleFileMissingError: it cannot be written.
    """
    conversation = {"format": _FORMAT, "system": state.system, "messages": state.messages}
    engine.save_session(path, state.token_ids, note=json.dumps(conversation))


def _parse(text: str) -> ChatState | None:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        return None
    system, messages = found.get("system"), found.get("messages")
    if not (system is None or isinstance(system, str)) or not isinstance(messages, list):
        return None
    if not all(_is_message(each) for each in messages):
        return None
    return ChatState(system, messages)


def _is_message(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"role", "content"}
        and all(isinstance(each, str) for each in value.values())
    )
