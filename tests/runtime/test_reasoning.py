"""Thoughts told from answers, wherever the text is cut into pieces."""

from __future__ import annotations

import pytest

from pilotfish.runtime.reasoning import Reasoning, ReasoningReader, reasons, split_reasoning

# The text, whether the prompt ended with <think>, the thoughts, the answer.
CASES = [
    ("<think>\nA plan.\n</think>\n\nYes.", False, "A plan.", "Yes."),
    ("A plan.\n</think>\n\nYes.", True, "A plan.", "Yes."),
    ("\n<think></think>Yes.", False, "", "Yes."),
    ("<think>\n\n</think>\n\nYes.\n", False, "", "Yes.\n"),
    ("  Yes, <think>no</think>.", False, "", "  Yes, <think>no</think>."),
    ("<thin air>", False, "", "<thin air>"),
    ("<think>a </thin air> b", False, "a </thin air> b", ""),
    ("a <b> </think> c </think> d <think>", True, "a <b>", "c </think> d <think>"),
    ("<think>never closed  ", False, "never closed  ", ""),
    ("<thi", False, "", "<thi"),
    ("", True, "", ""),
    (" \n", False, "", " \n"),
]


@pytest.mark.parametrize(("text", "has_begun", "thoughts", "answer"), CASES)
def test_a_text_is_divided(text: str, *, has_begun: bool, thoughts: str, answer: str) -> None:
    assert split_reasoning(text, has_begun=has_begun) == (thoughts, answer)


@pytest.mark.parametrize(("text", "has_begun", "thoughts", "answer"), CASES)
def test_pieces_of_any_size_are_divided_alike(text: str, *, has_begun: bool, thoughts: str, answer: str) -> None:
    for size in range(1, len(text) + 1):
        reader = ReasoningReader(has_begun=has_begun)
        pieces: list[Reasoning | str] = []
        for begin in range(0, len(text), size):
            pieces += reader.push(text[begin : begin + size])
        pieces += reader.finish()
        assert all(isinstance(piece, str) or piece.text for piece in pieces)
        assert "".join(piece.text for piece in pieces if isinstance(piece, Reasoning)) == thoughts
        assert "".join(piece for piece in pieces if isinstance(piece, str)) == answer


def test_what_is_certain_is_not_held_back() -> None:
    reader = ReasoningReader(has_begun=False)
    assert reader.push("<think>") == []
    assert reader.push("One ") == [Reasoning("One")]
    assert reader.push("two") == [Reasoning(" two")]
    assert reader.push("</think>") == []
    assert reader.push("\n\nSo ") == ["So "]
    assert reader.push("be it </think>") == ["be it </think>"]


def test_templates_tell_of_thoughts() -> None:
    assert reasons("{{ content.split('</think>')[-1] }}")
    assert not reasons("{{ content }}")
    assert not reasons(None)
