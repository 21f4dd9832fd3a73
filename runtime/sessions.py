"""A conversation in a file, with what the caches hold of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import BundleCorruptError, InvalidArgumentError, calls, limits

from .option_checks import check_encodable, check_path, prompt_array, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pilotfish.bindings import EngineHandle

    from .rounds import Rounds


@dataclass(frozen=True, slots=True)
class Session:
    """What Engine.load_session() found in a file."""

    token_ids: tuple[int, ...]
    """Of the conversation: a generation whose prompt begins with them goes on where it was saved."""
    num_cached_tokens: int
    """The first of them, which the caches hold again; those after them run once more."""
    note: str
    """What the program that saved it put beside it."""


def conversation_array(ids: Sequence[int], num_ids: int) -> NDArray[np.int32]:
    """The ids as the engine takes them: a prompt's, or those of a conversation that has not begun."""
    if isinstance(ids, (list, tuple)) and not ids:
        return np.empty(0, dtype=np.int32)
    return prompt_array(ids, num_ids)


def save(engine: EngineHandle, rounds: Rounds, path: str | Path, ids: NDArray[np.int32], note: str) -> int:
    """Engine.save_session() with the prompt's ids."""
    name = str(check_path("path", path, "a file"))
    if not isinstance(note, str):
        raise InvalidArgumentError(f"note is {shown(note)}, must be a string")
    check_encodable("note", note)
    encoded = note.encode()
    if len(encoded) > limits.MOST_SESSION_NOTE:
        raise InvalidArgumentError(f"note has {len(encoded)} bytes, at most {limits.MOST_SESSION_NOTE} are saved")
    with rounds.lock:
        return calls.engine_save_session(engine, name, ids, encoded)


def load(engine: EngineHandle, rounds: Rounds, path: str | Path) -> Session:
    """Engine.load_session()."""
    name = str(check_path("path", path, "a file"))
    ids, num_cached, note = rounds.reserve(lambda: calls.engine_load_session(engine, name))
    try:
        text = note.decode()
    except UnicodeDecodeError as error:
        raise BundleCorruptError(f"{name}: is no session of a Python program: its note is no UTF-8") from error
    return Session(tuple(ids), num_cached, text)
