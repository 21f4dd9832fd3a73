"""The thoughts that a model writes before its answer, told from the answer as text arrives.

Models of Qwen 3's and DeepSeek R1's kind put them between <think> and </think>; some templates end the prompt with the
first of these, so that the answer begins in the midst of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .stop_strings import longest_beginning

BEGIN, END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of a model's thoughts."""

    text: str


def reasons(template: str | None) -> bool:
    """Whether a chat template is of a model that thinks before it answers."""
    return END in (template or "")


class ReasoningReader:
    """Tells thoughts from the answer; nothing is lost but the marks and the blanks beside them."""

    def __init__(self, *, has_begun: bool) -> None:
        """``has_begun``: the prompt ends with the mark that begins thoughts."""
        self._held = ""  # what may be a mark, or blanks beside one
        self._is_thinking = has_begun
        self._is_first = True  # nothing but blanks came since the beginning, or since a mark
        self._is_through = False  # all that comes is the answer

    def push(self, piece: str) -> list[Reasoning | str]:
        """What is certain after a piece of the text."""
        self._held += piece
        found: list[Reasoning | str] = []
        while self._advance(found):
            pass
        return found

    def finish(self) -> list[Reasoning | str]:
        """What is left at the end."""
        held, self._held = self._held, ""
        return self._piece(held)

    def _advance(self, found: list[Reasoning | str]) -> bool:
        """Take what is held as far as it is certain; whether a mark was passed, behind which there may be more."""
        if self._is_first:
            stripped = self._held.lstrip()
            if not self._is_thinking and not self._is_through:
                return self._look_for_begin(stripped, found)
            if not stripped:
                return False
            self._held = stripped
            self._is_first = False
        if self._is_thinking:
            return self._look_for_end(found)
        found += self._piece(self._held)
        self._held = ""
        return False

    def _look_for_begin(self, stripped: str, found: list[Reasoning | str]) -> bool:
        if stripped.startswith(BEGIN):
            self._held = stripped.removeprefix(BEGIN)
            self._is_thinking = True
            return True
        if not BEGIN.startswith(stripped):  # an answer without thoughts, whose blanks are its own
            self._is_first, self._is_through = False, True
            found += self._piece(self._held)
            self._held = ""
        return False

    def _look_for_end(self, found: list[Reasoning | str]) -> bool:
        end = self._held.find(END)
        if end >= 0:
            found += self._piece(self._held[:end].rstrip())
            self._held = self._held[end + len(END) :]
            self._is_thinking, self._is_through, self._is_first = False, True, True
            return True
        shown = _num_certain(self._held)
        found += self._piece(self._held[:shown])
        self._held = self._held[shown:]
        return False

    def _piece(self, text: str) -> list[Reasoning | str]:
        if not text:
            return []
        return [Reasoning(text)] if self._is_thinking else [text]


def split_reasoning(text: str, *, has_begun: bool = False) -> tuple[str, str]:
    """The thoughts of a whole text, and the answer behind them.

    Args:
        text: of a Result, say.
        has_begun: whether the prompt ends with <think>, which the text then lacks.

    Returns:
        Both without the marks and the blanks beside them; thoughts are empty where the text begins with none.
    """
    reader = ReasoningReader(has_begun=has_begun)
    pieces = reader.push(text) + reader.finish()
    thoughts = "".join(piece.text for piece in pieces if isinstance(piece, Reasoning))
    return thoughts, "".join(piece for piece in pieces if isinstance(piece, str))


def _num_certain(text: str) -> int:
    """How much of it stands before no mark: all but the beginning of one at its end, and blanks before that."""
    return len(text[: len(text) - longest_beginning(text, (END,))].rstrip())
