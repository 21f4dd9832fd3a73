"""Makes a conversation that outgrew the context fit again, by forgetting its oldest turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.bindings import InvalidArgumentError

from .option_checks import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .messages import Message

WHEN_FULL = ("error", "drop_oldest")
# Who instructs the model: these messages, where a conversation begins with them, are not forgotten.
_INSTRUCTORS = ("system", "developer")


def check_when_full(when_full: str) -> None:
    """InvalidArgumentError unless it is one of WHEN_FULL."""
    if not isinstance(when_full, str) or when_full not in WHEN_FULL:
        raise InvalidArgumentError(f"when_full is {shown(when_full)}, must be one of {', '.join(WHEN_FULL)}")


def fit_conversation(
    messages: Sequence[Message], encode: Callable[[Sequence[Message]], list[int]], limit: int
) -> tuple[list[int], int]:
    """Token ids of the longest end of a conversation that has at most ``limit``, and how many messages it lacks.

    A turn is a user's message and what follows up to the next one, so that roles go on alternating. Instructions at the
    beginning and the last turn always stay: what they alone exceed the limit by is for the caller to refuse.
    """
    kept = list(messages)
    ids = encode(kept)
    while len(ids) > limit and (shorter := without_oldest_turn(kept)) is not None:
        kept = shorter
        ids = encode(kept)
    return ids, len(messages) - len(kept)


def without_oldest_turn(messages: Sequence[Message]) -> list[Message] | None:
    """The messages without the oldest turn; None if there is only one."""
    begin = 0
    while begin < len(messages) and messages[begin].get("role") in _INSTRUCTORS:
        begin += 1
    for index in range(begin + 1, len(messages)):
        if messages[index].get("role") == "user":
            return [*messages[:begin], *messages[index:]]
    return None
