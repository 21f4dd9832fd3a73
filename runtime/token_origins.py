"""Where each token of a generation comes from: the rounds that the option explain reports, told token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .results import Event, Round

ORIGINS = ("plain", "lookup", "draft", "head", "corrected")
"""The target alone (also after a draft that was accepted whole), the three sources of accepted tokens, and the target
in the place of a token that it rejected."""


def origin_in_round(each: Round, place: int, event: Event) -> str:
    """One of ORIGINS for the event of a round's token number ``place``, from 0."""
    if event.origin != "accepted":
        return "corrected" if event.origin == "corrected" else "plain"
    model = "head" if each.num_head else "draft"
    if not each.num_lookup:
        return model
    # Where a model and lookup drafted together, what the model did not think of in its place was looked up.
    has_model = bool(each.num_head or each.num_model)
    is_thought_of = place < len(each.ranks) and each.ranks[place] >= 0
    return model if has_model and is_thought_of else "lookup"


class OriginTeller:
    """Tells the origins of a stream's events in their order."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self._round_index = -1  # the pass over the prompt, which gives the first token
        self._place = 0

    def tell(self, event: Event, rounds: Sequence[Round]) -> str:
        """The origin of the next event; ``rounds`` are those of its stream so far."""
        if event.origin == "prompt":
            return "plain"
        if self._round_index < 0:
            self._round_index = 0
            return "plain"
        if self._place == rounds[self._round_index].num_tokens:
            self._round_index, self._place = self._round_index + 1, 0
        origin = origin_in_round(rounds[self._round_index], self._place, event)
        self._place += 1
        return origin
