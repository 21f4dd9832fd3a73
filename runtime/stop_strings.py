"""Finds stop strings in a stream of text pieces, also where they span pieces."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .options import GenerateOptions


def with_special_stops(options: GenerateOptions, special_ids: Mapping[str, int]) -> GenerateOptions:
    """The options with the id of each stop string that spells a special token among their stop_ids.

    Text leaves special tokens out. What is spelled alike with ordinary tokens is still found in the text.

    Raises:
        InvalidArgumentError: a stop string has a special token beside other text.
    """
    for stop in options.stop_strings:
        for spelling in special_ids:
            if spelling in stop and stop not in special_ids:
                raise InvalidArgumentError(
                    f"stop is {stop!r}, but text leaves the special token {spelling!r} out: stop at {spelling!r} alone"
                )
    ids = [special_ids[stop] for stop in options.stop_strings if stop in special_ids]
    return dataclasses.replace(options, stop_ids=(*options.stop_ids, *ids)) if ids else options


class StopStrings:
    """Holds back text that may be the beginning of a stop string until it is decided."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Watch for any of ``stops``, each non-empty."""
        self._stops = tuple(stops)
        self._held = ""

    @property
    def held(self) -> str:
        """The text held back."""
        return self._held

    def push(self, piece: str, *, may_stop: bool = True) -> tuple[str, bool]:
        """The text that is safe to show, and whether a stop string was reached: the one that is complete first.

        A stop string that is completed by a piece that may not stop is shown as any other text.
        """
        text = self._held + piece
        if may_stop:
            starts = [(stop, text.find(stop, max(0, len(self._held) - len(stop) + 1))) for stop in self._stops]
            found = [(start + len(stop), start) for stop, start in starts if start >= 0]
            if found:
                self._held = ""
                return text[: min(found)[1]], True
        num_held = longest_beginning(text, self._stops)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held], False

    def flush(self) -> str:
        """The held back text, which no stop string will claim any more."""
        text, self._held = self._held, ""
        return text


def longest_beginning(text: str, marks: Sequence[str]) -> int:
    """Length of the longest end of ``text`` that begins one of ``marks`` and is not the whole of it."""
    longest = max((len(mark) for mark in marks), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in marks):
            return length
    return 0
