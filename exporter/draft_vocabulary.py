"""Which ids a draft or head scores: a smaller output layer, so that a large vocabulary does not eat its advantage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from .errors import OptionError
from .parity_text import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .tokenizer import TokenizerInfo

_PIECE_CHARACTERS = 1 << 16
_PIECES_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """Row j of a draft's or head's logits is about token ids[j]."""

    ids: tuple[int, ...]  # ascending
    coverage: float | None = None  # share of the text's tokens that are among them

    @property
    def is_prefix(self) -> bool:
        """Whether row j is about token j, so that no map is needed."""
        return self.ids[-1] == len(self.ids) - 1


def choose_ids(
    option: str, num_ids: int | None, text: Path | None, tokenizer: TokenizerInfo, *, limit: int, owner: str
) -> DraftVocabulary | None:
    """The vocabulary that the export option `option` asks for; None asks for all ids.

    limit: ids that `owner` has.

    Raises:
        OptionError: more ids than that, or a text that cannot be read.
    """
    if num_ids is None:
        return None
    if num_ids > limit:
        raise OptionError(f"{option} is {num_ids}; {owner} has only {limit} ids")
    return first_ids(num_ids) if text is None else most_frequent_ids(tokenizer, num_ids, text)


def first_ids(num_ids: int) -> DraftVocabulary:
    """Ids 0 .. num_ids - 1: byte-pair tokenizers number tokens by frequency."""
    return DraftVocabulary(tuple(range(num_ids)))


def most_frequent_ids(tokenizer: TokenizerInfo, num_ids: int, text: Path) -> DraftVocabulary:
    """The stop ids, then the most frequent tokens of a text file, then the lowest ids that it does not use.

    Raises:
        OptionError: a file that cannot be read or has no text.
    """
    return Ranking.of(tokenizer, text).first(num_ids)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All ids of a tokenizer in the order in which a smaller output layer wants them."""

    ids: tuple[int, ...]
    counts: Counter[int]  # of a text file's tokens; empty: the order does not come from one

    @classmethod
    def of(cls, tokenizer: TokenizerInfo, text: Path | None) -> Ranking:
        """The stop ids, the most frequent tokens of a text file, then the lowest ids.

        text: None takes what a chat template writes and a built-in text.

        Raises:
            OptionError: a file that cannot be read or has no text.
        """
        backend = Tokenizer.from_str(tokenizer.json_text)
        if text is None:
            used = _counted(backend, (tokenizer.chat_template or "", TEXT))
            counts: Counter[int] = Counter()
        else:
            used = counts = _counted(backend, _pieces(text))
            if not counts:
                raise OptionError(f"draft_vocab_text {text} has no text to count tokens in")
        by_frequency = sorted(range(tokenizer.size), key=lambda token: (-used[token], token))
        return cls(tuple(dict.fromkeys([*tokenizer.eos_ids, *by_frequency])), counts)

    def first(self, num_ids: int) -> DraftVocabulary:
        """A vocabulary of the first so many of them."""
        chosen = self.ids[:num_ids]
        covered = sum(self.counts[token] for token in chosen) / self.counts.total() if self.counts else None
        return DraftVocabulary(tuple(sorted(chosen)), covered)


def _counted(backend: Tokenizer, text: Iterable[str]) -> Counter[int]:
    counts: Counter[int] = Counter()
    pieces: list[str] = []
    for piece in text:
        pieces.append(piece)
        if len(pieces) == _PIECES_TOGETHER:
            _count(backend, pieces, counts)
            pieces = []
    _count(backend, pieces, counts)
    return counts


def _count(backend: Tokenizer, pieces: list[str], counts: Counter[int]) -> None:
    for encoded in backend.encode_batch(pieces, add_special_tokens=False):
        counts.update(encoded.ids)


def _pieces(text: Path) -> Iterator[str]:
    """The file in pieces that end at a line's end, where there are lines."""
    try:
        with text.open(encoding="utf-8") as file:
            while lines := file.readlines(_PIECE_CHARACTERS):
                yield "".join(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"draft_vocab_text {text} cannot be read as UTF-8 text: {error}") from error
