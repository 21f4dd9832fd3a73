"""Text files -> rows of tokens. Rows that overlap the evaluation prompts are left out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.files import sha256_of

from .errors import DataError
from .rows import Row, TokenRows, existing_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokenizers import Tokenizer

Array = np.ndarray[Any, np.dtype[Any]]

_SUFFIXES = (".txt", ".md")
_PIECE_CHARACTERS = 1 << 18
_PIECES_TOGETHER = 32  # tokenised in parallel
_OVERLAP_TOKENS = 20
_HASH_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no power is 0 modulo 2^64


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of the training text and what the card says about it."""

    path: Path
    name: str
    bytes: int
    sha256: str
    licence: str


def find_text(data: Path, licence: str | None) -> tuple[TextFile, ...]:
    """The text files of `data` in order of name; licences out of a manifest.json ({"sources": [{"file", "licence"}]}).

    Raises:
        DataError: no such file or folder, no text in it, or an unreadable manifest.
    """
    if not data.exists():
        raise DataError(f"{data} does not exist")
    folder = data if data.is_dir() else data.parent
    paths = sorted(path for path in data.rglob("*") if path.suffix in _SUFFIXES) if data.is_dir() else [data]
    if not paths:
        raise DataError(f"{data} holds no text; files ending in {' or '.join(_SUFFIXES)} are read")
    stated = _manifest_licences(folder / "manifest.json")
    return tuple(
        TextFile(
            path=path,
            name=str(path.relative_to(folder)),
            bytes=path.stat().st_size,
            sha256=sha256_of(path),
            licence=stated.get(path.name) or licence or "not stated",
        )
        for path in paths
    )


def _manifest_licences(manifest: Path) -> dict[str, str]:
    if not manifest.is_file():
        return {}
    try:
        sources = json.loads(manifest.read_text(encoding="utf-8"))["sources"]
        return {Path(source["file"]).name: str(source["licence"]) for source in sources}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f'{manifest} is not of the form {{"sources": [{{"file": ..., "licence": ...}}]}}') from error


def pack_text(
    files: tuple[TextFile, ...],
    tokenizer: Tokenizer,
    length: int,
    prompts: list[str],
    folder: Path,
    *,
    advance: Callable[[int], None],
) -> TokenRows:
    """Tokens of all files one after another, cut into rows of `length`; made once, then read again.

    Raises:
        DataError: a file that is not UTF-8, or less text than one row.
        StorageError: the disk is full.
    """
    parts = [tokenizer.to_str(), str(length), *(file.sha256 for file in files), *prompts]
    fingerprint = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    found = existing_rows(folder, fingerprint)
    if found is not None:
        return found
    overlap = PromptOverlap([tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts])
    rows = _rows(files, tokenizer, length, overlap, advance)
    return write_rows(folder, rows, length, tokenizer.get_vocab_size(with_added_tokens=True), fingerprint)


def _rows(
    files: tuple[TextFile, ...],
    tokenizer: Tokenizer,
    length: int,
    overlap: PromptOverlap,
    advance: Callable[[int], None],
) -> Iterator[Row]:
    waiting = np.zeros(0, dtype=np.int64)
    for pieces in _groups(files):
        encodings = tokenizer.encode_batch(pieces, add_special_tokens=False)
        waiting = np.concatenate([waiting, *(np.asarray(encoding.ids, dtype=np.int64) for encoding in encodings)])
        count = len(waiting) // length
        block, waiting = waiting[: count * length].reshape(count, length), waiting[count * length :]
        for row in block[~overlap.rows_that_overlap(block)]:
            yield Row(row)
        advance(sum(len(piece.encode()) for piece in pieces))


def _groups(files: tuple[TextFile, ...]) -> Iterator[list[str]]:
    group: list[str] = []
    for piece in (piece for file in files for piece in _pieces(file.path)):
        group.append(piece)
        if len(group) == _PIECES_TOGETHER:
            yield group
            group = []
    if group:
        yield group


def _pieces(path: Path) -> Iterator[str]:
    """Some hundred thousand characters at a time, cut at line ends so that no word is cut."""
    try:
        with path.open(encoding="utf-8") as file:
            while lines := file.readlines(_PIECE_CHARACTERS):
                yield "".join(lines)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


class PromptOverlap:
    """Finds rows that share a run of 20 tokens with an evaluation prompt, by hashes of all runs."""

    def __init__(self, prompts: list[list[int]]) -> None:
        runs = [_run_hashes(np.asarray([prompt])) for prompt in prompts if len(prompt) >= _OVERLAP_TOKENS]
        self._known = np.unique(np.concatenate([run.ravel() for run in runs])) if runs else np.zeros(0, dtype=np.uint64)

    def rows_that_overlap(self, rows: Array) -> Array:
        """[rows, length] -> bool [rows]."""
        if not len(self._known) or not len(rows) or rows.shape[1] < _OVERLAP_TOKENS:
            return np.zeros(len(rows), dtype=np.bool_)
        found: Array = np.isin(_run_hashes(rows), self._known)
        return np.asarray(found.any(axis=1))

    def runs_in(self, tokens: Array) -> Array:
        """[length] -> where runs of 20 tokens begin that a prompt has too."""
        if not len(self._known) or len(tokens) < _OVERLAP_TOKENS:
            return np.zeros(0, dtype=np.int64)
        return np.isin(_run_hashes(tokens[None])[0], self._known).nonzero()[0]


def _run_hashes(rows: Array) -> Array:
    """Polynomial hash modulo 2^64 of every run of _OVERLAP_TOKENS tokens of each row."""
    width = rows.shape[1] - _OVERLAP_TOKENS + 1
    hashes = np.zeros((len(rows), width), dtype=np.uint64)
    for offset in range(_OVERLAP_TOKENS):
        hashes = hashes * _HASH_BASE + rows[:, offset : offset + width].astype(np.uint64) + np.uint64(1)
    return hashes
