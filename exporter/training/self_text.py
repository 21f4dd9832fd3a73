"""Text that the target writes itself: user turns out of its chat template, then its answers at mixed temperatures.

Each shard is one batch of conversations with its own seed and one file, so a killed run loses at most one shard.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .conversation import BEGINNINGS, ChatFrame, Excerpts, chat_frame, excerpt_turns, text_words
from .errors import DataError
from .generate import continue_all
from .rows import Row, TokenRows, existing_rows, write_rows
from .storage import storage_errors
from .text import PromptOverlap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from .options import SelfText
    from .target import Target
    from .workspace import TimeLimit

Array = np.ndarray[Any, np.dtype[Any]]

_QUESTION_TOKENS = 128
_QUESTION_TEMPERATURES = (0.8, 1.0)
_OPEN_ROWS = 64  # rows that packing fills at the same time
_MAX_BARREN_SHARDS = 8  # shards in a row without an answer: the target does not speak this template


class Conversation(NamedTuple):
    """A prompt and its answer as one token sequence."""

    tokens: Array
    prompt_tokens: int


def write_shards(
    target: Target,
    options: SelfText,
    text: Excerpts,
    *,
    given: Sequence[str] = (),
    seed: int,
    folder: Path,
    advance: Callable[[int], None],
    time_limit: TimeLimit,
) -> None:
    """Writes shards until the target has written `options.tokens` over all processes.

    Process r of n writes the shards r, r + n, ...; finished ones are only counted. The first shards answer the user
    turns `given`, in an order by the seed.

    Raises:
        TimeLimitReached: between two shards.
        TrainingOptionError: a target without a usable chat template.
        StorageError: the disk is full; the shards before are kept.
        DataError: the target answers nothing.
    """
    ordered = [given[row] for row in np.random.default_rng(seed).permutation(len(given))]
    author = _Author(target, chat_frame(target.tokenizer, target.checkpoint.id), options, text, ordered, seed)
    from accelerate import PartialState  # noqa: PLC0415 - of the extra "train", which --help does without

    state = PartialState()
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written, barren, index = 0, 0, state.process_index
    while written * state.num_processes < options.tokens:
        path = shard_path(folder, index)
        if not path.is_file():
            time_limit.check("the target writes its text")
            save_shard(path, author.shard(index))
        answers = sum(len(item.tokens) - item.prompt_tokens for item in read_shard(path))
        barren = 0 if answers else barren + 1
        if barren == _MAX_BARREN_SHARDS:
            raise DataError(f"{target.checkpoint.id} wrote no answer in {barren * options.batch} conversations")
        written += answers
        advance(answers * state.num_processes)
        index += state.num_processes
    state.wait_for_everyone()


def shard_path(folder: Path, index: int) -> Path:
    """Where a shard lies."""
    return folder / f"shard-{index:05d}.npz"


def quotes_text(index: int, share: float) -> bool:
    """Whether a shard's user turns quote the training text: evenly over the shards, and never both in one shard.

    Quoting turns are long, the target's own short, and rows written together are padded to the longest.
    """
    return int((index + 1) * share + 0.5) > int(index * share + 0.5)


@dataclass(frozen=True, slots=True)
class _Author:
    """Makes the conversations of a shard, which depend on its index and the seed alone."""

    target: Target
    frame: ChatFrame
    options: SelfText
    text: Excerpts
    given: Sequence[str]
    seed: int

    def shard(self, index: int) -> list[Conversation]:
        """The target's answers to the shard's user turns."""
        options, rng = self.options, np.random.default_rng([self.seed, index])
        seed = int(rng.integers(1 << 31))
        turns = self._turns(index, rng, seed)
        rng.shuffle(turns)  # every kind of turn meets every temperature
        prompts = [ids for ids in self.frame.all_prompt_ids(turns) if len(ids) <= options.prompt_tokens]
        if not prompts:
            return []
        temperatures = [options.temperatures[row % len(options.temperatures)] for row in range(len(prompts))]
        answers = continue_all(self.target, prompts, options.answer_tokens, temperatures, seed=seed + 1)
        return [
            Conversation(np.asarray([*prompt, *answer]), len(prompt))
            for prompt, answer in zip(prompts, answers, strict=True)
            if answer
        ]

    def _turns(self, index: int, rng: np.random.Generator, seed: int) -> list[str]:
        """Given ones first; then all turns of a shard quote the training text, or the target writes all."""
        options, frame = self.options, self.frame
        begin = index * options.batch
        if begin < len(self.given):
            return list(self.given[begin : begin + options.batch])
        if quotes_text(index - -(-len(self.given) // options.batch), options.excerpt_share):
            return excerpt_turns(frame, self.text, options.batch, options.prompt_tokens, rng)
        begun = beginnings(frame, self.text, options.batch, rng)
        return _own_turns(self.target, begun, frame, options.prompt_tokens, seed)


def beginnings(frame: ChatFrame, text: Excerpts, count: int, rng: np.random.Generator) -> list[str]:
    """How user turns begin: a quarter as the target likes, half with a word of the training text after some words.

    Left to itself, or after these words alone, it asks about few things, and heads learn its answers to those by heart.
    """
    found = []
    for row, word in enumerate(text_words(frame, text, count, rng)):
        given = BEGINNINGS[row // 4 % len(BEGINNINGS)]
        asked = f"{given.rstrip()} {word}" if word else given
        found.append(("", given, asked, asked)[row % 4])
    return found


def _own_turns(target: Target, begun: list[str], frame: ChatFrame, max_tokens: int, seed: int) -> list[str]:
    """User turns that the target writes to their end when its template leaves it the user's place."""
    room = max(1, max_tokens - len(frame.prompt_ids("")))
    openings = [frame.opening_ids(beginning) for beginning in begun]
    temperatures = [_QUESTION_TEMPERATURES[row // 4 % len(_QUESTION_TEMPERATURES)] for row in range(len(begun))]
    written = continue_all(target, openings, min(room, _QUESTION_TOKENS), temperatures, seed=seed)
    turns = [
        beginning + target.backend.decode(ids, skip_special_tokens=True)
        for beginning, ids in zip(begun, written, strict=True)
    ]
    return [turn.strip() for turn in turns if turn.strip()]


def save_shard(path: Path, conversations: list[Conversation]) -> None:
    """Writes a shard; it appears under its name when it is complete."""
    partial = path.with_name(f"{path.name}.partial")
    tokens = np.concatenate([item.tokens for item in conversations]) if conversations else np.zeros(0)
    with storage_errors(path):
        with partial.open("wb") as file:
            np.savez(
                file,
                tokens=tokens.astype(np.uint32),
                lengths=np.asarray([len(item.tokens) for item in conversations], dtype=np.int32),
                prompt_tokens=np.asarray([item.prompt_tokens for item in conversations], dtype=np.int32),
            )
        partial.replace(path)


def read_shard(path: Path) -> list[Conversation]:
    """The conversations of a finished shard.

    Raises:
        DataError: the file is damaged.
    """
    try:
        with np.load(path) as arrays:
            parts = np.split(arrays["tokens"].astype(np.int64), np.cumsum(arrays["lengths"])[:-1])
            prompts = arrays["prompt_tokens"].tolist()
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is damaged ({error}); delete it and the target writes it again") from error
    return [Conversation(tokens, prompt) for tokens, prompt in zip(parts, prompts, strict=False)]


def pack_conversations(folder: Path, target: Target, length: int, prompts: list[str], out: Path) -> TokenRows:
    """All shards as rows: whole conversations side by side, only the positions that predict an answer scored.

    Conversations that share a run of 20 tokens with one of the evaluation's `prompts` are left out.
    """
    shards = sorted(folder.glob("shard-*.npz"))
    content = [(path.name, path.stat().st_size) for path in shards]
    fingerprint = hashlib.sha256(f"{length} {target.pad_id} {content} {prompts}".encode()).hexdigest()
    found = existing_rows(out, fingerprint)
    if found is not None:
        return found
    overlap = PromptOverlap([target.backend.encode(prompt, add_special_tokens=False).ids for prompt in prompts])
    conversations = (item for path in shards for item in _without_overlap(read_shard(path), overlap))
    rows = (_row(group, length, target.pad_id) for group in fill_rows(conversations, length))
    return write_rows(out, rows, length, target.vocab_size, fingerprint)


def _without_overlap(conversations: list[Conversation], overlap: PromptOverlap) -> list[Conversation]:
    flat = np.concatenate([item.tokens for item in conversations]) if conversations else np.zeros(0, dtype=np.int64)
    ends = np.cumsum([len(item.tokens) for item in conversations])
    found = np.searchsorted(ends, overlap.runs_in(flat), side="right")  # a run over two of them counts for the first
    return [item for index, item in enumerate(conversations) if index not in set(found.tolist())]


def fill_rows(conversations: Iterator[Conversation], length: int) -> Iterator[list[Conversation]]:
    """Best fit over a window of open rows: each conversation goes where it leaves the least room."""
    open_rows: list[tuple[int, list[Conversation]]] = []  # (room, members), least room first
    for item in conversations:
        size = min(len(item.tokens), length)
        place = next((at for at, (room, _) in enumerate(open_rows) if room >= size), None)
        room, members = (length, []) if place is None else open_rows.pop(place)
        open_rows.append((room - size, [*members, item]))
        open_rows.sort(key=lambda entry: entry[0])
        if len(open_rows) > _OPEN_ROWS:
            yield open_rows.pop(0)[1]
    yield from (members for _, members in open_rows)


def _row(members: list[Conversation], length: int, pad_id: int) -> Row:
    tokens = np.full(length, pad_id, dtype=np.int64)
    positions = np.zeros(length, dtype=np.int64)  # every pad is a text of its own: one more token to look at
    scored = np.zeros(length, dtype=np.bool_)
    start = 0
    for item in members:
        size = min(len(item.tokens), length)
        tokens[start : start + size] = item.tokens[:size]
        positions[start : start + size] = np.arange(size)
        scored[start + item.prompt_tokens - 1 : start + size - 1] = True
        start += size
    return Row(tokens, positions, scored)
