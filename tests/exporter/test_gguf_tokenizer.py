"""Tokenizers inside GGUF files: the same ids as the model's folder gives, and every end of a text or turn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tiny_gguf import tokenizer_fields, write_gguf
from tiny_models import save_model, tiny_config
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from pilotfish.exporter import ExportOptions, export
from pilotfish.exporter.errors import TokenizerError
from pilotfish.exporter.gguf import build_tokenizer, open_gguf
from pilotfish.exporter.gguf.tokenizer import split_rule
from pilotfish.exporter.load import load_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

SIZE = 512
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>")
PLAIN = ("<think>", "    ")
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TRAINED_ON = [
    "The quick brown fox jumps over the lazy dog, and it's the 1st of 2024 foxes that we've seen today.",
    "def add(left, right):\n    return left + right  # they'll be added\n\n\nprint(add(12, 345))",
    "Ünïcödé wörds, naïve café, Straße; 日本語のテキスト, русский текст, 🎉🎉 emoji",
    "the other there then they the that this those these with without within",
]
PIECES = (
    "the",
    " the",
    "  there",
    "it's",
    "WE'LL",
    "\n\n",
    "\r\n ",
    "\t",
    "12345",
    " 7",
    "ÜNÏ",
    "日本",
    "🎉",
    "e\u0301",
    "\u200b",
    "\ufeff",
    "<think>",
    "<|eot_id|>",
    "     ",
    "!?...",
    "_x_",
    "\u00a0",
)
ODD_STRINGS = [left + right for left in PIECES for right in PIECES[:10]] + ["", *PIECES, *TRAINED_ON]


def byte_level(rule: str) -> Tokenizer:
    """A trained vocabulary of at most SIZE tokens, as a checkpoint's tokenizer.json has it."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=rule == "llama-bpe"))
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = {
        "gpt-2": words,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words]),
        "llama-bpe": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), whole]),
    }[rule]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    size = SIZE - len(SPECIAL) - len(PLAIN)
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, min_frequency=1, show_progress=False)
    tokenizer.train_from_iterator(TRAINED_ON, trainer)
    return with_marked(tokenizer)


def with_marked(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN])
    return tokenizer


def sentence_piece() -> Tokenizer:
    """As a Llama 2's tokenizer.json: spaces are U+2581, unknown characters are bytes."""
    letters = sorted({letter for text in TRAINED_ON[:2] for letter in text if letter.isalnum()} | {"▁", ",", "."})
    vocabulary = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "t"), ("▁", "th"), ("▁t", "h"), ("▁th", "e"), ("e", "r")]
    merges += [("▁the", "r"), ("▁th", "er"), ("▁", "▁"), ("▁▁", "▁▁"), ("i", "n")]  # all ways to make each token
    kept = []
    for left, right in merges:
        if left + right not in vocabulary:
            vocabulary.append(left + right)
        kept.append((left, right))
    tokenizer = Tokenizer(
        models.BPE(
            {token: index for index, token in enumerate(vocabulary)},
            sorted(kept, key=lambda pair: [vocabulary.index(token) for token in ("".join(pair), *pair)]),
            unk_token="<unk>",  # noqa: S106 - a token of the vocabulary
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return with_marked(tokenizer)


def merged_pieces() -> Tokenizer:
    """Gemma 4's kind: the same pieces without a space in front, line breaks apart from other text."""
    tokenizer = sentence_piece()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def fields_of(tokenizer: Tokenizer, rule: str | None) -> dict[str, Any]:
    """What llama.cpp's converter writes about a tokenizer. rule: of a byte-level one; "llama": SentencePiece's."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    kinds = dict.fromkeys(SPECIAL, CONTROL) | dict.fromkeys(PLAIN, USER_DEFINED) | {"<unk>": UNKNOWN}
    types = [kinds.get(token, BYTE if token.startswith("<0x") else NORMAL) for token in tokens]
    ids = {"bos_token_id": vocabulary[SPECIAL[0]], "eos_token_id": vocabulary[SPECIAL[1]]}
    if rule == "llama":
        scores = [-float(index) for index in range(len(tokens))]
        return tokenizer_fields("llama", tokens, types, scores=scores, unknown_token_id=0, add_bos_token=False, **ids)
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    if rule == "gemma4":
        return tokenizer_fields("gemma4", tokens, types, merges=merges, unknown_token_id=0, add_bos_token=False, **ids)
    return tokenizer_fields("gpt2", tokens, types, merges=merges, **({"pre": rule} if rule else {}), **ids)


def save(tokenizer: Tokenizer, folder: Path) -> Path:
    """A tiny model that has the tokenizer, as a folder."""
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    config = tiny_config("llama", vocab_size=size, bos_token_id=size - 6, eos_token_id=size - 5)
    save_model(folder, config, tokenizer=False)
    names = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder


def tokenizers(rule: str, tmp_path: Path, **more: Any) -> tuple[Any, Any]:
    """What the exporter has of the folder's and of the GGUF's tokenizer."""
    kinds = {"llama": sentence_piece, "gemma4": merged_pieces}
    made = kinds[rule]() if rule in kinds else byte_level(rule)
    folder = save(made, tmp_path / "model")
    path = write_gguf(folder, tmp_path / "model.gguf", fields={**fields_of(made, rule), **more})
    return load_checkpoint(str(folder)).tokenizer, load_checkpoint(str(path)).tokenizer


@pytest.mark.parametrize("rule", ["gpt-2", "smollm", "llama-bpe", "llama", "gemma4"])
def test_folder_and_file_give_the_same_ids(rule: str, tmp_path: Path) -> None:
    folder, file = tokenizers(rule, tmp_path)
    expected, found = Tokenizer.from_str(folder.json_text), Tokenizer.from_str(file.json_text)
    assert len(ODD_STRINGS) > 200
    for text in ODD_STRINGS:
        ids = expected.encode(text, add_special_tokens=False).ids
        assert found.encode(text, add_special_tokens=False).ids == ids, text
        for skip in (True, False):
            assert found.decode(ids, skip_special_tokens=skip) == expected.decode(ids, skip_special_tokens=skip), text
    assert (file.size, file.bos_id, file.eos_ids[0]) == (folder.size, folder.bos_id, folder.eos_ids[0])
    assert file.warning is None


def test_no_token_is_added_to_a_vocabulary(tmp_path: Path) -> None:
    """A Llama 3 has no <|endoftext|>, which GPT-2's tokenizer of transformers would add as one more."""
    folder, file = tokenizers("llama-bpe", tmp_path)
    assert file.size == folder.size == load_checkpoint(str(tmp_path / "model.gguf")).config.vocab_size


def test_every_end_is_an_end(tmp_path: Path) -> None:
    _, file = tokenizers("llama-bpe", tmp_path)
    ids = {token: Tokenizer.from_str(file.json_text).token_to_id(token) for token in SPECIAL}
    assert file.eos_ids == (ids["<|end_of_text|>"], ids["<|eot_id|>"], ids["<|eom_id|>"])
    named = {"tokenizer.ggml.eot_token_id": 65, "tokenizer.ggml.eom_token_id": 66}
    (tmp_path / "named").mkdir()
    _, file = tokenizers("gpt-2", tmp_path / "named", **named)
    assert file.eos_ids[:3] == (Tokenizer.from_str(file.json_text).token_to_id("<|end_of_text|>"), 65, 66)
    assert load_checkpoint(str(tmp_path / "named" / "model.gguf")).config.eos_token_id == list(file.eos_ids)


@pytest.mark.parametrize(
    ("rule", "flag", "expected"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("gpt-2", None, False), ("gpt-2", True, True)],
)
def test_whether_a_text_begins_with_bos(rule: str, *, flag: bool | None, expected: bool, tmp_path: Path) -> None:
    more = {} if flag is None else {"tokenizer.ggml.add_bos_token": flag}
    _, file = tokenizers(rule, tmp_path, **more)
    assert file.add_bos is expected
    assert (Tokenizer.from_str(file.json_text).encode("the").ids[0] == file.bos_id) is expected


def test_a_missing_rule_is_warned_of(tmp_path: Path, cli: CommandLine) -> None:
    tokenizer = byte_level("gpt-2")
    folder = save(tokenizer, tmp_path / "model")
    path = write_gguf(folder, tmp_path / "old.gguf", fields=fields_of(tokenizer, None))
    finished = cli("export", path, "--no-parity", "--out", tmp_path / "out")
    assert finished.exit_code == 0, finished.err
    assert "warning: old.gguf does not say how its tokenizer splits text" in " ".join(finished.err.split())
    options = ExportOptions(parity=False, tokenizer=str(folder), overwrite=True)
    assert export(str(path), tmp_path / "out", options=options).warnings == ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "tokenizer of kind 'rwkv'"),
        ({"tokenizer.ggml.pre": "nonesuch"}, r"tokenizer\.ggml\.pre is 'nonesuch'"),
    ],
)
def test_an_unknown_tokenizer_is_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizers("gpt-2", tmp_path, **fields)


@pytest.mark.parametrize(("architecture", "takes_space"), [("phi3", True), ("llama", False)])
def test_marked_tokens_of_phi3_take_the_space_behind_them(
    architecture: str, *, takes_space: bool, tmp_path: Path
) -> None:
    made = sentence_piece()
    path = write_gguf(save(made, tmp_path / "model"), tmp_path / "model.gguf", fields=fields_of(made, "llama"))
    file = open_gguf(path)
    backend = build_tokenizer(replace(file, fields={**file.fields, "general.architecture": architecture})).backend
    for token, is_taken in (("<|eot_id|>", takes_space), ("<think>", False)):
        behind = backend.encode(f"{token}  the").tokens[1:]
        assert (behind == backend.encode("the").tokens) == is_taken, token


@pytest.mark.parametrize(
    ("rule", "text", "pieces"),
    [
        ("smollm", "in 2024, we'll", ["in", "Ġ", "2", "0", "2", "4", ",", "Ġwe", "'ll"]),
        ("qwen2", "in 2024, We'LL\n\n", ["in", "Ġ", "2", "0", "2", "4", ",", "ĠWe", "'LL", "ĊĊ"]),
        ("llama-bpe", "in 20245, we", ["in", "Ġ", "202", "45", ",", "Ġwe"]),
        ("gpt-2", "in 2024, we'll", ["in", "Ġ2024", ",", "Ġwe", "'ll"]),
        ("stablelm2", "in 24, We'LL\n", ["in", "Ġ", "2", "4", ",", "ĠWe", "'LL", "Ċ"]),
        ("glm4", "in 20245, we", ["in", "Ġ", "202", "45", ",", "Ġwe"]),
        ("exaone4", "in 2024, we'll", ["in", "Ġ2024", ",", "Ġwe", "'ll"]),
        ("tekken", "in 24, WeAre", ["in", "Ġ", "2", "4", ",", "ĠWe", "Are"]),
    ],
)
def test_splitting_rules(rule: str, text: str, pieces: list[str]) -> None:
    assert [piece for piece, _ in split_rule(rule).pre_tokenize_str(text)] == pieces
