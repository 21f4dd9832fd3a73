"""A tokenizer that is handed its vocabulary is the one that the library reads from the same file."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from pilotfish.runtime import tokenizer_file
from pilotfish.runtime.tokenizer_file import tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXTS = (
    "The quick brown fox jumps over 13 lazy dogs, and then over <|odd|> ones  again.",
    "naïve café — über 你好 👩‍👩‍👧 \x00\x7f",
    "<|im_start|>user\nhello<|im_end|>\n  <|UP|> <|up|> x<mask>y",
    "",
    " leading and trailing ",
)


def trained(**options: Any) -> dict[str, Any]:
    """A byte-level tokenizer of a few merges, as its file has it."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return dict(json.loads(tokenizer.to_str()))


def with_added(content: dict[str, Any]) -> None:
    """Tokens that the vocabulary does not have, of every kind."""
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens([AddedToken("<|up|>", normalized=True), AddedToken("<|odd|>", single_word=True)])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", tokenizer.token_to_id("<|im_start|>"))]
    )
    content.update(json.loads(tokenizer.to_str()))


def with_lines(content: dict[str, Any]) -> None:
    """Merges as older files have them."""
    merges = content["model"]["merges"]
    content["model"]["merges"] = ["#version: 0.2", *(" ".join(merge) for merge in merges)]


def with_few_keys(content: dict[str, Any]) -> None:
    for name in ("dropout", "byte_fallback", "ignore_merges", "continuing_subword_prefix"):
        content["model"].pop(name, None)


def falling_back(content: dict[str, Any]) -> None:
    content["model"] |= {"byte_fallback": True, "fuse_unk": True, "ignore_merges": True, "unk_token": "Ġ"}


def compared(content: dict[str, Any]) -> None:
    text = json.dumps(content, ensure_ascii=False).encode()
    found, expected = tokenizer_of(text, json.loads(text)), Tokenizer.from_buffer(text)
    assert found.to_str() == expected.to_str()
    assert found.get_vocab() == expected.get_vocab()
    assert found.get_added_tokens_decoder().keys() == expected.get_added_tokens_decoder().keys()
    if content["model"].get("dropout"):
        return  # its ids are random
    for each in TEXTS:
        for adds in (True, False):
            assert found.encode(each, add_special_tokens=adds).ids == expected.encode(each, add_special_tokens=adds).ids
        ids = expected.encode(each).ids
        assert found.decode(ids, skip_special_tokens=False) == expected.decode(ids, skip_special_tokens=False)


class PartsAlone:
    """Stands for Tokenizer where the library's reader must not see the whole file."""

    from_str = staticmethod(Tokenizer.from_str)


@pytest.mark.parametrize("change", [None, with_added, with_lines, with_few_keys, falling_back])
def test_byte_pairs_are_handed_over(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None] | None
) -> None:
    content = trained()
    if change is not None:
        change(content)
    compared(content)
    monkeypatch.setattr(tokenizer_file, "Tokenizer", PartsAlone)
    assert tokenizer_of(b"", copy.deepcopy(content)).get_vocab_size() > 300


def test_other_kinds_are_the_librarys() -> None:
    compared(trained(dropout=0.5) | {"added_tokens": []})
    unknown = {"unk_token": "?"}
    words = Tokenizer(models.WordLevel({"the": 0, "fox": 1, "?": 2}, **unknown))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    compared(json.loads(words.to_str()))
    compared(json.loads(Tokenizer(models.Unigram([("?", 0.0), ("the", -1.0)], unk_id=0)).to_str()))


@pytest.mark.parametrize(
    "change",
    [
        {"merges": [["nowhere", "else"]]},
        {"merges": [["a", "b", "c"]]},
        {"merges": ["a"]},
        {"merges": {"a": "b"}},
        {"merges": [7]},
        {"vocab": {"a": 1.5}},
        {"vocab": {"a": True}},
        {"vocab": {"a": -1}},
        {"vocab": {"a": 2**40}},
        {"vocab": []},
        {"fuse_unk": 3},
        {"unk_token": 3},
    ],
)
def test_what_is_no_tokenizer_is_refused_by_the_library(change: dict[str, Any]) -> None:
    content = trained()
    content["model"] |= change
    text = json.dumps(content).encode()
    with pytest.raises(Exception, match=r".") as expected:
        Tokenizer.from_buffer(text)
    with pytest.raises(type(expected.value)) as found:
        tokenizer_of(text, json.loads(text))
    assert str(found.value) == str(expected.value)


def test_a_published_tokenizer(real_bundle: Path) -> None:
    compared(json.loads((real_bundle / "tokenizer.json").read_bytes()))
