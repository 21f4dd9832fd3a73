"""Special tokens that a message spells are text: a user who writes ``<|im_end|>`` ends nobody's turn.

A mark inside the spelling keeps the tokenizer from finding the token, and a normaliser takes the mark away before the
text is split into ordinary tokens, so that the ids are those of the text without the mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, normalizers

from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARK = "\ufdd0"
"""A noncharacter: Unicode keeps it for a program's own use."""


class SpelledTokens:
    """Marks spellings in messages, and encodes text that has marks."""

    def __init__(self, to_json: Callable[[], str], spellings: Iterable[str]) -> None:
        """``spellings`` are those of the special tokens of the tokenizer.json that ``to_json`` gives when needed."""
        self._to_json = to_json
        self._tokenizer: Tokenizer | None = None
        longest_first = sorted((text for text in spellings if len(text) > 1), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def marked(self, value: Any) -> Any:
        """A copy of a message, or of a part of one, in which every spelling is marked.

        Raises:
            InvalidArgumentError: a text has both a spelling and the mark.
        """
        if isinstance(value, str):
            return self._marked_text(value)
        if isinstance(value, Mapping):
            return {name: self.marked(part) for name, part in value.items()}
        return [self.marked(part) for part in value] if isinstance(value, (list, tuple)) else value

    def encode(self, text: str) -> list[int]:
        """Ids of text with marks."""
        if self._tokenizer is None:
            self._tokenizer = self._unmarking_tokenizer()
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _marked_text(self, text: str) -> str:
        if self._pattern is None or self._pattern.search(text) is None:
            return text
        if MARK in text:
            raise InvalidArgumentError(
                f"character {text.index(MARK)} of a message is the noncharacter U+FDD0 beside a special token's "
                "spelling: leave it out"
            )
        return self._pattern.sub(lambda found: found[0][0] + MARK + found[0][1:], text)

    def _unmarking_tokenizer(self) -> Tokenizer:
        content = json.loads(self._to_json())
        for token in content["added_tokens"]:  # found before the text is normalised, while the marks are there
            token["normalized"] = token["normalized"] and not token["special"]
        tokenizer = Tokenizer.from_str(json.dumps(content))
        unmark = normalizers.Replace(MARK, "")
        before = tokenizer.normalizer
        tokenizer.normalizer = unmark if before is None else normalizers.Sequence([unmark, before])
        return tokenizer
