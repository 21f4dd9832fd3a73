"""Makes a tokenizer of the tokenizers library from a tokenizer.json.

The library's own reader takes 0.1 s for the 49,152 tokens and 48,900 merges of SmolLM2: it guesses the kind of model by
trying each. Where the file says that the model is byte-pair encoding, the vocabulary goes to the library as Python
objects, in a quarter of the time, and its reader sees the rest of the file alone. Both make the same tokenizer. Strings
that a vocabulary has are not kept twice: weights are read at the same time, and the process's peak is of both.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

_FLAGS = frozenset(("fuse_unk", "byte_fallback", "ignore_merges"))
_TEXTS = frozenset(("unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
_DROPOUT = "dropout"  # which makes ids random: no model's file sets it
_NEEDED = frozenset(("type", "vocab", "merges"))
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_VERSION_LINE = "#version"


def tokenizer_of(text: bytes, content: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a file's bytes, which parse to ``content``; what the library raises where it is none.

    The vocabulary and the merges are taken out of ``content``.
    """
    try:
        parts = _byte_pair_parts(content)
    except (AttributeError, LookupError, ValueError, TypeError, OverflowError):  # the library's own reader says which
        parts = None
    if parts is None:
        return Tokenizer.from_buffer(text)
    tokenizer, model, added = parts
    tokenizer.model = model
    tokenizer.add_tokens(added)
    return tokenizer


def _byte_pair_parts(content: dict[str, Any]) -> tuple[Tokenizer, BPE, list[AddedToken]] | None:
    """All but the vocabulary, the vocabulary and the added tokens; None where the file has what is not known here."""
    model, added = content.get("model"), content.get("added_tokens")
    if not isinstance(model, dict) or model.get("type") != "BPE" or not isinstance(added, list):
        return None
    options = {name: value for name, value in model.items() if name not in _NEEDED}
    vocabulary = model.pop("vocab", None)
    if not isinstance(vocabulary, dict) or set(map(type, vocabulary.values())) != {int}:
        return None
    merges = _pairs(model.pop("merges", None), vocabulary)
    if merges is None or not all(_is_known(name, value) for name, value in options.items()):
        return None
    tokens = [token for token in map(_added_token, added) if token is not None]
    if len(tokens) < len(added):
        return None
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    try:
        rest = content | {"added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
        return Tokenizer.from_str(json.dumps(rest)), BPE(vocabulary, merges, **given), tokens
    except Exception:  # noqa: BLE001 - it raises bare ones
        return None


def _is_known(name: str, value: object) -> bool:
    if name in _FLAGS:
        return isinstance(value, bool)
    return value is None if name == _DROPOUT else name in _TEXTS and (value is None or isinstance(value, str))


def _pairs(merges: Any, vocabulary: dict[str, int]) -> list[tuple[str, str]] | None:
    """Merges as pairs of the vocabulary's own strings; older files have lines of two words."""
    kinds = set(map(type, merges)) if isinstance(merges, list) else set()
    if kinds == {str}:
        merges = [line.split(" ") for line in merges if not line.startswith(_VERSION_LINE)]
    elif kinds != {list}:
        return None
    if not set(map(len, merges)) <= {2}:
        return None
    own = dict(zip(vocabulary, vocabulary, strict=True))
    return [(own[left], own[right]) for left, right in merges]


def _added_token(token: Any) -> AddedToken | None:
    if not isinstance(token, dict) or token.keys() != {"id", "content", *_TOKEN_FLAGS}:
        return None
    flags = {name: token[name] for name in _TOKEN_FLAGS}
    if not isinstance(token["content"], str) or not all(isinstance(flag, bool) for flag in flags.values()):
        return None
    return AddedToken(token["content"], **flags)
