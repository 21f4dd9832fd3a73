"""Refuses a tokenizer.json that would take a prompt too long or too far: a bundle brings it, so that it is not trusted.

The steps are those of the tokenizers library; each must be known, and what they may add to a text together is bounded.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import BundleCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_STEPS = 64
"""Of a normalizer, pre-tokenizer, post-processor or decoder."""
MOST_NESTED = 8
MOST_GROWTH = 64
"""How many times as long all replacements together may make a text."""
MOST_PATTERN = 4096
MOST_ADDED_TOKENS = 2**17
MOST_TOKEN = 4096
KNOWN = {
    "normalizer": {
        *("Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Replace", "Prepend", "Nmt"),
        *("Precompiled", "BertNormalizer", "ByteLevel"),
    },
    "pre_tokenizer": {
        *("Sequence", "ByteLevel", "Metaspace", "Split", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits"),
        *("BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts", "FixedLength"),
    },
    "post_processor": {"Sequence", "ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing"},
    "decoder": {
        *("Sequence", "ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip", "WordPiece", "BPEDecoder"),
        "CTC",
    },
}
_BACK_REFERENCE = re.compile(r"\\(?:[1-9]|k|g)")
_UNBOUNDED = re.compile(r"[*+]|\{\d*,\}")
# What of a pattern is no operator: an escape, or a class of characters.
_ATOM = re.compile(r"\\.|\[(?:\\.|\[(?:\\.|[^\]\\])*\]|[^\]\\])+\]", re.DOTALL)


def check_tokenizer(path: object, text: bytes) -> dict[str, Any]:
    """The content of a tokenizer.json; BundleCorruptError, which says why, unless it is one that public models have."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleCorruptError(f"{path} is not a tokenizer: {error}") from error
    if not isinstance(content, dict):
        raise BundleCorruptError(f"{path} is not a tokenizer: it is no JSON object")
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > MOST_ADDED_TOKENS or any(_is_long(token) for token in added):
        raise BundleCorruptError(
            f"{path} has added tokens that are more than {MOST_ADDED_TOKENS} or longer than {MOST_TOKEN} characters"
        )
    for part, known in KNOWN.items():
        problem = _problem(list(_steps(content.get(part))), known)
        if problem:
            raise BundleCorruptError(f"{path} has a {part} {problem}")
    return content


def _is_long(token: Any) -> bool:
    return not isinstance(token, dict) or len(str(token.get("content", ""))) > MOST_TOKEN


def _steps(step: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """Each step and how deep it is nested; a few more than are allowed at most."""
    rest = [(step, 0)]
    count = 0
    while rest and count <= MOST_STEPS:
        item, depth = rest.pop()
        if isinstance(item, dict):
            count += 1
            yield item, depth
            for name in ("normalizers", "pretokenizers", "processors", "decoders"):
                inner = item.get(name)
                rest += [(each, depth + 1) for each in inner] if isinstance(inner, list) else []


def _problem(steps: list[tuple[dict[str, Any], int]], known: set[str]) -> str | None:
    if len(steps) > MOST_STEPS or any(depth > MOST_NESTED for _, depth in steps):
        return f"of more than {MOST_STEPS} steps, or nested deeper than {MOST_NESTED}"
    growth = 1.0
    for step, _ in steps:
        kind = step.get("type")
        if kind not in known:
            return f"of type {kind!r:.40}, which pilotfish does not know"
        pattern = step.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        if regex is not None and (why := why_not_regex(regex)):
            return f"with the pattern {regex!r:.60}, {why}"
        if kind == "Replace":
            growth *= _growth(pattern, str(step.get("content", "")))
    return (
        f"that makes a text {growth:.0f} times as long, at most {MOST_GROWTH} are allowed"
        if growth > MOST_GROWTH
        else None
    )


def _growth(pattern: Any, content: str) -> float:
    """How many times as long a replacement may make a text, in bytes."""
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    replaced = len(literal.encode(errors="replace")) if isinstance(literal, str) else 1
    added = len(content.encode(errors="replace"))
    return max(1.0, added / replaced if replaced else 1.0 + added)


def why_not_regex(regex: object) -> str | None:
    """What about an expression may take time that is exponential in the text; None if nothing does."""
    if not isinstance(regex, str) or len(regex) > MOST_PATTERN:
        return f"which is no text of at most {MOST_PATTERN} characters"
    if _BACK_REFERENCE.search(regex):
        return "which refers back to a group"
    rest = _ATOM.sub("x", regex)
    groups = [False]  # for each open one, whether something in it repeats or branches
    for at, letter in enumerate(rest):
        if letter == "(":
            groups.append(False)
        elif letter == ")" and len(groups) > 1:
            repeats = groups.pop()
            if repeats and _UNBOUNDED.match(rest, at + 1):
                return "which repeats a group that itself repeats or branches"
            groups[-1] = groups[-1] or repeats
        elif letter == "|" or _UNBOUNDED.match(rest, at) or (letter == "?" and rest[at - 1 : at] != "("):
            groups[-1] = True
    return None
