"""The text that a model reads while it is calibrated, in windows of token ids."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from pilotfish.bindings import InvalidArgumentError
from pilotfish.exporter.errors import OptionError
from pilotfish.runtime.files import read_text

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.tokenizer import TokenizerInfo

Array = np.ndarray[Any, np.dtype[Any]]
_WINDOW = 512  # tokens that see each other
_NUM_WINDOWS = 8  # at least, of a shorter text
_MOST_HELD = 4
LEAST_TOKENS = 1024
MOST_TOKENS = 1 << 14
_MOST_CHARACTERS = 1 << 22  # of a longer text, its beginning is read
_LINES = 512  # that are tokenised at once
_MOST_BROKEN = 0.3  # share of tokens that are no text; of a language that a tokenizer knows it is a few percent
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True)
class CalibrationText:
    """Token ids of a text."""

    name: str
    windows: Array  # int64 [num_windows, num_tokens]

    @property
    def num_tokens(self) -> int:
        """Of all windows together."""
        return int(self.windows.size)

    @property
    def num_held(self) -> int:
        """Windows that show what rounding has gained, and so are not read for it."""
        return max(min(len(self.windows) // 4, _MOST_HELD), 1)

    def held_last(self) -> CalibrationText:
        """The same windows in another order: those that are held come from all over the text."""
        count = len(self.windows)
        held = {(index + 1) * count // self.num_held - 1 for index in range(self.num_held)}
        order = [*(index for index in range(count) if index not in held), *sorted(held)]
        return CalibrationText(self.name, self.windows[order])

    def at_most(self, num_tokens: int) -> CalibrationText:
        """As many of the windows, from all over the text, as have so many tokens; one at least."""
        count = min(max(num_tokens // self.windows.shape[1], 1), len(self.windows))
        chosen = [index * len(self.windows) // count for index in range(count)]
        return CalibrationText(self.name, self.windows[chosen])

    @property
    def digest(self) -> str:
        """What tells the same ids from others."""
        return hashlib.sha256(repr(self.windows.shape).encode() + self.windows.tobytes()).hexdigest()


def read_windows(
    option: str, path: Path, tokenizer: TokenizerInfo, *, max_positions: int, most_tokens: int = MOST_TOKENS
) -> CalibrationText:
    """The text of a file that an option names, as a tokenizer sees it; of a long one, windows from all over it.

    Raises:
        OptionError: it cannot be read, has too few tokens, or is in a language that the tokenizer does not know.
    """
    ids = _token_ids(tokenizer, _read(option, path))
    if len(ids) < LEAST_TOKENS:
        raise OptionError(f"{option} {path} has {len(ids)} tokens; give a text of at least {LEAST_TOKENS}")
    _check_language(option, path, ids, tokenizer)
    first = [tokenizer.bos_id] if tokenizer.add_bos else []
    length = min(_WINDOW, max_positions, len(ids) // _NUM_WINDOWS) - len(first)
    if length < 1 or length + len(first) < 2:  # noqa: PLR2004 - a token that follows another
        raise OptionError(f"{option} {path} cannot be read in windows of {max_positions} positions: export with more")
    windows = [[*first, *ids[start : start + length]] for start in range(0, len(ids) - length + 1, length)]
    return CalibrationText(str(path), np.array(windows, np.int64)).at_most(most_tokens)


def _token_ids(tokenizer: TokenizerInfo, text: str) -> list[int]:
    backend = Tokenizer.from_str(tokenizer.json_text)
    lines = text[:_MOST_CHARACTERS].splitlines(keepends=True)
    pieces = ["".join(lines[start : start + _LINES]) for start in range(0, len(lines), _LINES)]
    return [token for found in backend.encode_batch(pieces, add_special_tokens=False) for token in found.ids]


def _read(option: str, path: Path) -> str:
    try:
        return read_text(option, str(path))
    except InvalidArgumentError as error:
        raise OptionError(f"{error}; give a file with plain text") from error


def _check_language(option: str, path: Path, ids: list[int], tokenizer: TokenizerInfo) -> None:
    """Refuses a text of which the tokenizer mostly makes bytes and unknown tokens: a model learns nothing from it."""
    backend, counts = Tokenizer.from_str(tokenizer.json_text), Counter(ids)
    unknown = json.loads(tokenizer.json_text).get("model", {}).get("unk_token")

    def is_broken(token: int) -> bool:
        piece = backend.id_to_token(token) or ""
        return piece == unknown or bool(_BYTE_TOKEN.fullmatch(piece)) or "\ufffd" in backend.decode([token])

    share = sum(count for token, count in counts.items() if is_broken(token)) / len(ids)
    if share > _MOST_BROKEN:
        raise OptionError(
            f"{share:.0%} of the tokens of {option} {path} are unknown or parts of a character, at most "
            f"{_MOST_BROKEN:.0%} may be: give a text in a language that the model knows"
        )
