"""The chat template as the pieces that self-written text needs. Knows nothing about models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import TrainingOptionError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from .rows import TokenRows

Array = np.ndarray[Any, np.dtype[Any]]

_WORD_EXCERPT = 32  # tokens to find a word in
_TOPIC_LETTERS = 5
_MARK = "\u2063user turn\u2063"  # invisible separators: in no template

# User turns that quote the training text; each {} is an excerpt.
REQUESTS = (
    "Give me a short summary of this passage.\n\n{}",
    "What are the most important points here?\n\n{}",
    "Explain this to someone who has never heard of it:\n\n{}",
    "{}\n\nCan you explain what this means?",
    "Please put this into simpler words:\n\n{}",
    "{}\n\nWrite down three questions that this text answers, with the answers.",
    "Using only the text below, say what it is about and why it matters.\n\n{}",
    "Translate into German:\n\n{}",
    "Translate into French:\n\n{}",
    "How would you say this in Spanish?\n\n{}",
    "Please continue:\n\n{}",
    "Finish this and return the complete version:\n\n{}",
    "```\n{}\n```\n\nWhat does this do?",
    "```\n{}\n```\n\nIs there anything wrong with this? Show a better version.",
    "Write a short example that shows how to use this:\n\n{}",
    "{}",
    "Use the passages below.\n\n[1] {}\n\n[2] {}\n\nWhat do they say? Quote the sentences that you rely on.",
    "[1] {}\n\n[2] {}\n\n[3] {}\n\nExplain passage 2 to a beginner, and say which passages help.",
    "Here are some passages.\n\n[1] {}\n\n[2] {}\n\n[3] {}\n\nList the facts in them, each with its passage.",
)

# How user turns begin that the target writes to their end.
BEGINNINGS = (
    "How can I",
    "How do I",
    "What is the best way to",
    "What are the",
    "What is the difference between",
    "Why do",
    "Why is",
    "Explain how",
    "Can you explain",
    "Give me",
    "Give me a plan for",
    "List some",
    "Compare",
    "I am",
    "I have",
    "I want to",
    "My",
    "Help me",
    "Tell me about",
    "Tell me a story about",
    "Write a short",
    "Write a poem about",
    "Write an email to",
    "Suggest",
    "Describe",
    "Recommend",
    "A shop sells",
    "There are",
    "Anna has",
    "If a car",
    "Solve",
    "Calculate",
    "Write a function in Python that",
    "Write a Python program that",
    "```python\ndef ",
    "Finish this Python function:\n\n```python\ndef ",
    "How does this code work?\n\n```python\n",
    "Translate this sentence into German: ",
    "Translate this paragraph into French:\n\n",
    "Summarize this article:\n\n",
    "Read this text and answer the question below.\n\n",
)


@dataclass(frozen=True, slots=True)
class ChatFrame:
    """The template around one user turn, as text."""

    tokenizer: PreTrainedTokenizerFast
    opening: str  # up to where the user's words begin
    closing: str  # from their end to where the answer begins

    def opening_ids(self, beginning: str = "") -> list[int]:
        """Tokens after which the target writes a user turn itself, or the rest of one that begins so."""
        text = self.opening + beginning
        ids: list[int] = self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def prompt_ids(self, user_turn: str) -> list[int]:
        """Tokens of the whole prompt for a user turn."""
        return self.all_prompt_ids([user_turn])[0]

    def all_prompt_ids(self, user_turns: list[str]) -> list[list[int]]:
        """The same for many turns, tokenised in parallel."""
        texts = [self.opening + turn + self.closing for turn in user_turns]
        return [found.ids for found in self.tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)]


def chat_frame(tokenizer: PreTrainedTokenizerFast, target: str) -> ChatFrame:
    """Reads the frame out of the tokenizer's chat template.

    Raises:
        TrainingOptionError: there is none, or it changes the user's words.
    """
    if tokenizer.chat_template is None:
        raise TrainingOptionError(
            f"{target} has no chat template to write conversations in; set the self_text steps to 0"
        )
    turn = [{"role": "user", "content": _MARK}]
    text = str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    if text.count(_MARK) != 1:
        raise TrainingOptionError(
            f"the chat template of {target} does not show the user's words once; set the self_text steps to 0"
        )
    opening, closing = text.split(_MARK)
    return ChatFrame(tokenizer, opening, closing)


@dataclass(frozen=True, slots=True)
class Excerpts:
    """The rows of the training text that user turns may quote."""

    rows: TokenRows
    row_ids: Array


def excerpt_turns(frame: ChatFrame, text: Excerpts, count: int, max_tokens: int, rng: np.random.Generator) -> list[str]:
    """User turns about excerpts of the training text that leave some room below `max_tokens` prompt tokens."""
    if count == 0:
        return []
    rooms = [_room(frame, request, max_tokens) for request in REQUESTS]
    usable = [(request, room) for request, room in zip(REQUESTS, rooms, strict=True) if room >= 1]
    if not usable:
        raise TrainingOptionError(
            f"prompt_tokens is {max_tokens}; the template and a request take {max_tokens - max(rooms)}, give more"
        )
    turns = []
    for _ in range(count):
        request, room = usable[rng.integers(len(usable))]
        turns.append(request.format(*(_excerpt(frame, text, room, rng) for _ in range(request.count("{}")))))
    return turns


def text_words(frame: ChatFrame, text: Excerpts, count: int, rng: np.random.Generator) -> list[str]:
    """Words of the training text, one an excerpt; "" where an excerpt has none of some length."""
    words = []
    for _ in range(count):
        found = [word for word in _excerpt(frame, text, _WORD_EXCERPT, rng).split() if _is_topic(word)]
        words.append(found[rng.integers(len(found))] if found else "")
    return words


def _is_topic(word: str) -> bool:
    return word.isalpha() and len(word) >= _TOPIC_LETTERS


def _room(frame: ChatFrame, request: str, max_tokens: int) -> int:
    """Tokens that each excerpt of a request may have."""
    excerpts = request.count("{}")
    cut_words = 4 * excerpts  # cutting inside a word can add a few tokens
    return (max_tokens - len(frame.prompt_ids(request.replace("{}", ""))) - cut_words) // excerpts


def _excerpt(frame: ChatFrame, text: Excerpts, room: int, rng: np.random.Generator) -> str:
    row = np.asarray(text.rows.tokens[rng.choice(text.row_ids)])
    longest = min(room, len(row))
    size = int(rng.integers(max(1, longest // 4), longest + 1))
    start = int(rng.integers(len(row) - size + 1))
    ids = row[start : start + size].tolist()
    return frame.tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=True).strip()
