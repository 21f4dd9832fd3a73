"""A tokenizer.json comes with a bundle: what would take a prompt too long is refused, public models' own is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tokenizer_entries import manifest_of

from pilotfish.bindings import BundleCorruptError
from pilotfish.runtime.tokenizer_checks import check_tokenizer, why_not_regex

if TYPE_CHECKING:
    from pathlib import Path

DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


def nested(depth: int) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "NFC"}
    for _ in range(depth):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


def split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": [DOUBLING] * 60}}, "times as long"),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "a" * 99}}, "times as long"),
        ({"decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 99}}, "times as long"),
        ({"normalizer": nested(20)}, "nested deeper than"),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 99}}, "more than 64 steps"),
        ({"pre_tokenizer": split("(a+)+$")}, "repeats a group"),
        ({"pre_tokenizer": split("(?:a|a)*$")}, "repeats a group"),
        ({"pre_tokenizer": split("(?:a?){1,}$")}, "repeats a group"),
        ({"pre_tokenizer": split(r"(a)\1")}, "refers back"),
        ({"pre_tokenizer": split("a" * 5000)}, "at most 4096"),
        ({"pre_tokenizer": {"type": "Surprise"}}, "'Surprise', which pilotfish does not know"),
        ({"added_tokens": [{"content": "a"}] * (2**17 + 1)}, "added tokens"),
        ({"added_tokens": [{"content": "a" * 5000}]}, "added tokens"),
        ([], "no JSON object"),
    ],
)
def test_what_takes_too_long_is_refused(content: Any, words: str) -> None:
    with pytest.raises(BundleCorruptError, match=words):
        check_tokenizer("tokenizer.json", json.dumps(content).encode())


@pytest.mark.parametrize(
    "regex",
    [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r" ?[^(\s|[.,!?])]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    ],
)
def test_what_public_models_split_by_is_taken(regex: str) -> None:
    assert why_not_regex(regex) is None


def test_a_bundles_tokenizer_is_checked_and_neither_clips_nor_pads(tiny_bundle: Path, tmp_path: Path) -> None:

    from pilotfish.runtime.tokenizer import Tokenizer

    content = json.loads((tiny_bundle / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 24},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = Tokenizer(manifest_of(tmp_path, 258, 256, (257,), add_bos=False))
    assert len(tokenizer.encode_rendered("hi")) == 2
    assert len(tokenizer.encode_rendered("x" * 100)) == 100
    content["normalizer"] = {"type": "Sequence", "normalizers": [DOUBLING] * 60}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(BundleCorruptError, match="times as long"):
        Tokenizer(manifest_of(tmp_path, 258, 256, (257,), add_bos=False))
