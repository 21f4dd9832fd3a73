"""What every id of a tokenizer spells, in bytes, and the ids that ordinary text is spelled with.

Decoding may tell the tokens of a text apart from their bytes; a grammar is about bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A spelling is asked for again after each of its tokens: so much of a text is enough to know the next one.
_MOST_CHARACTERS = 256
_LENGTH_OF_BYTE_TOKEN = len("<0x00>")


class TokenBytes:
    """A tokenizer as llguidance takes one: it reads the attributes, and calls it for the ids of a text.

    Ids are special that a grammar may name, as in ``<|im_start|>``, and no text contains: those whose added token is
    marked so or has the form ``<...>``, and those that end the text.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer_json: str, num_ids: int, eos_ids: Sequence[int]) -> None:
        """Read a tokenizer.json.

        Raises:
            ValueError: its decoder is neither of bytes nor falls back to them.
        """
        description = json.loads(tokenizer_json)
        special_ids = set(eos_ids)
        for token in description["added_tokens"]:
            if token["special"] or (token["content"].startswith("<") and token["content"].endswith(">")):
                token["special"] = True
                special_ids.add(token["id"])
        _remove_prefixes(description)
        self._tokenizer = Tokenizer.from_str(json.dumps(description))
        self._tokenizer.encode_special_tokens = True  # as ordinary text
        self.eos_token_id = eos_ids[0]
        self._special_ids = frozenset(special_ids)
        self.special_token_ids = sorted(token_id for token_id in special_ids if token_id < num_ids)
        self.tokens = self._spellings(description, num_ids)
        """Of each id; empty where there is no token. llguidance marks the special ones."""
        self._ids: dict[bytes, int] = {}  # of ordinary tokens
        for token_id in range(num_ids - 1, -1, -1):
            if token_id not in special_ids:
                self._ids[self.tokens[token_id]] = token_id
        self._ids.pop(b"", None)
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str) -> list[int]:
        """Ids of ordinary tokens that spell the beginning of a text, as the tokenizer does wherever it keeps its bytes.

        Raises:
            UnspellableError: no tokens spell it.
        """
        text = text[:_MOST_CHARACTERS]
        spelled = text.encode()
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        is_ordinary = all(self._is_ordinary(token_id) for token_id in ids)
        if is_ordinary and b"".join(self.tokens[token_id] for token_id in ids) == spelled:
            return list(ids)
        return self._fewest(spelled)

    def _is_ordinary(self, token_id: int) -> bool:
        return token_id < len(self.tokens) and token_id not in self._special_ids and bool(self.tokens[token_id])

    def _fewest(self, text: bytes) -> list[int]:
        """The spelling with the fewest tokens, of equal ones the one whose last tokens are longest."""
        ends: list[tuple[int, int] | None] = [(0, 0)]  # of each length: its number of tokens, and where the last begins
        for end in range(1, len(text) + 1):
            found = None
            for begin in range(max(0, end - self._longest), end):
                before = ends[begin]
                if before and text[begin:end] in self._ids and (found is None or before[0] + 1 < found[0]):
                    found = (before[0] + 1, begin)
            ends.append(found)
        end, ids = len(text), []
        while end > 0:
            last = ends[end]
            if last is None:
                raise UnspellableError(f"no tokens spell {text!r}")
            ids.append(self._ids[text[last[1] : end]])
            end = last[1]
        return ids[::-1]

    def _spellings(self, description: dict[str, Any], num_ids: int) -> list[bytes]:
        added = {token["id"]: token["content"].encode() for token in description["added_tokens"]}
        spell = _speller(description)
        spellings = [b""] * num_ids
        for token, token_id in self._tokenizer.get_vocab(with_added_tokens=True).items():
            if token_id < num_ids:
                spellings[token_id] = added[token_id] if token_id in added else spell(token)
        return spellings


class UnspellableError(ValueError):
    """The vocabulary has no tokens for a text."""


def _speller(description: dict[str, Any]) -> Any:
    decoders = list(_parts(description.get("decoder"), "decoders"))
    kinds = {entry["type"] for entry in decoders}
    if "ByteFallback" in kinds:
        return lambda token: _bytes_or_text(token, _space(decoders))
    if "ByteLevel" in kinds:
        letters = _byte_letters()
        return lambda token: bytes(letters[letter] for letter in token) if letters.keys() >= set(token) else b""
    raise ValueError("its decoder has neither the type ByteLevel nor ByteFallback")


def _bytes_or_text(token: str, space: str) -> bytes:
    if len(token) == _LENGTH_OF_BYTE_TOKEN and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace(space, " ").encode()


def _space(decoders: Sequence[dict[str, Any]]) -> str:
    """What stands for a space in tokens."""
    for entry in decoders:
        if entry["type"] == "Replace" and entry["content"] == " ":
            return str(entry["pattern"].get("String", " "))
    return " "


def _byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in byte-level tokens: itself where it can be seen."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}


def _remove_prefixes(description: dict[str, Any]) -> None:
    """What a tokenizer puts before a prompt has no place before a piece of text within an answer."""
    description["truncation"] = description["padding"] = description["post_processor"] = None
    for entry in _parts(description.get("pre_tokenizer"), "pretokenizers"):
        if entry["type"] == "Metaspace":
            entry["prepend_scheme"] = "never"
        if entry["type"] == "ByteLevel":
            entry["add_prefix_space"] = False
    description["normalizer"] = _without_prepend(description.get("normalizer"))


def _without_prepend(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    if normalizer is None or normalizer["type"] == "Prepend":
        return None
    if normalizer["type"] != "Sequence":
        return normalizer
    kept = [part for part in map(_without_prepend, normalizer["normalizers"]) if part is not None]
    return normalizer | {"normalizers": kept}


def _parts(entry: dict[str, Any] | None, name: str) -> Iterator[dict[str, Any]]:
    """An entry, or those of the sequence that it is."""
    if entry is None:
        return
    if entry["type"] != "Sequence":
        yield entry
        return
    for part in entry[name]:
        yield from _parts(part, name)
