"""Pieces end on whole characters, and together they are the text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_entries import manifest_of
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from pilotfish.bindings import BundleCorruptError, BundleFileMissingError
from pilotfish.runtime.tokenizer import Detokenizer, Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NUM_BYTES = 256


def load(folder: Path, tokenizer: HuggingFaceTokenizer) -> Tokenizer:
    tokenizer.save(str(folder / "tokenizer.json"))
    return Tokenizer(manifest_of(folder, tokenizer.get_vocab_size(), NUM_BYTES, (NUM_BYTES + 1,), add_bos=True))


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """GPT-2's scheme, one token a byte: every character but ASCII spans tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = HuggingFaceTokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<begin>", special=True), AddedToken("<end>", special=True)])
    return load(tmp_path_factory.mktemp("byte_level"), tokenizer)


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Llama 2's scheme: words with a space mark, and bytes for what is not in the vocabulary."""
    words = ["▁", "▁a", "▁word", "a", "b", "é"]
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(NUM_BYTES)}
    vocabulary |= {word: NUM_BYTES + 2 + index for index, word in enumerate(words)}
    merges = [("▁", "a")]
    tokenizer = HuggingFaceTokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token=None))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return load(tmp_path_factory.mktemp("byte_fallback"), tokenizer)


def pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    result = [detokenizer.push(token_id) for token_id in ids]
    return [*result, detokenizer.flush()]


@given(text=TEXTS)
def test_byte_level_pieces_are_whole_characters_and_the_text(byte_level: Tokenizer, text: str) -> None:
    result = pieces(byte_level, byte_level.encode_rendered(text))
    assert "".join(result) == text
    assert [len(piece) for piece in result if piece] == [1] * len(text)


@given(ids=st.lists(st.integers(0, NUM_BYTES + 1), max_size=80))
def test_byte_level_pieces_are_the_decoded_text_for_any_bytes(byte_level: Tokenizer, ids: list[int]) -> None:
    assert "".join(pieces(byte_level, ids)) == byte_level.decode(ids)


@given(text=TEXTS.filter(lambda text: "▁" not in text))
def test_byte_fallback_pieces_are_the_decoded_text(byte_fallback: Tokenizer, text: str) -> None:
    ids = byte_fallback.encode_rendered(text)
    result = pieces(byte_fallback, ids)
    assert "".join(result) == byte_fallback.decode(ids) == text
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in result)


@given(ids=st.lists(st.integers(0, NUM_BYTES - 1), max_size=80))
def test_byte_fallback_survives_any_bytes(byte_fallback: Tokenizer, ids: list[int]) -> None:
    text = "".join(pieces(byte_fallback, ids))
    assert len(text) <= len(ids)


def test_undecodable_tail_is_not_kept_forever(byte_level: Tokenizer) -> None:
    broken = byte_level.encode_rendered("é")[0]
    detokenizer = Detokenizer(byte_level)
    longest = 0
    for _ in range(200):
        detokenizer.push(broken)
        longest = max(longest, len(detokenizer._window))
    assert longest < 40


def test_special_tokens_add_no_text(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("h\N{SNOWMAN}")
    assert ids[0] == NUM_BYTES
    ids.insert(3, NUM_BYTES + 1)
    assert "".join(pieces(byte_level, ids)) == "h\N{SNOWMAN}"


def test_missing_and_broken_tokenizer_files_are_named(tmp_path: Path) -> None:
    def load_it() -> Tokenizer:
        return Tokenizer(manifest_of(tmp_path, 1, None, (), add_bos=False))

    with pytest.raises(BundleFileMissingError, match=r"tokenizer\.json is missing"):
        load_it()
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": 3}))
    with pytest.raises(BundleCorruptError, match=r"tokenizer\.json is not a tokenizer"):
        load_it()
