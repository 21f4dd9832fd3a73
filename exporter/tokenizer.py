"""A checkpoint's tokenizer as tokenizer.json, its special and stop ids, and its chat template."""

from __future__ import annotations

import json
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerFast

from .errors import CheckpointError, TokenizerError, in_one_line
from .sources import open_gguf

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

# The splitting rule each GGUF "tokenizer.ggml.pre" stands for: transformers' reader applies GPT-2's to all of them.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "qwen2": _WORDS.replace("DIGITS", ""),
    "llama-bpe": _WORDS.replace("DIGITS", "{1,3}"),
}


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """What the bundle says about the tokenizer. `json_text` is the whole tokenizer.json."""

    json_text: str
    size: int  # tokens, added ones included: ids are below it
    bos_id: int | None
    eos_ids: tuple[int, ...]
    pad_id: int | None
    add_bos: bool
    chat_template: str | None


def load_tokenizer(folder: str, gguf_file: str | None, config: PretrainedConfig) -> TokenizerInfo | None:
    """Reads the tokenizer beside a checkpoint or inside a GGUF file; None if the checkpoint has none.

    Raises:
        TokenizerError: a slow-only tokenizer, no end-of-sequence id, or an unknown splitting rule in a GGUF.
    """
    tokenizer = _read(folder, gguf_file)
    if tokenizer is None:
        return None
    backend: Tokenizer = tokenizer.backend_tokenizer
    backend.no_truncation()  # both are of batches for training; transformers too sets them anew for each call
    backend.no_padding()
    if gguf_file is not None:
        _set_split_rule(backend, _gguf_fields(folder, gguf_file))
    eos_ids = _eos_ids(folder, gguf_file, config, tokenizer.eos_token_id)
    if not eos_ids:
        raise TokenizerError(f"{folder} names no end-of-sequence token in its config, generation config or tokenizer")
    template = tokenizer.chat_template
    return TokenizerInfo(
        json_text=backend.to_str(),
        size=backend.get_vocab_size(with_added_tokens=True),
        bos_id=tokenizer.bos_token_id,
        eos_ids=eos_ids,
        pad_id=tokenizer.pad_token_id,
        add_bos=_adds_bos(backend, tokenizer.bos_token_id),
        chat_template=template if isinstance(template, str) else None,
    )


def _read(folder: str, gguf_file: str | None) -> Any:
    """The tokenizer as transformers reads it, None if there is none."""
    files = Path(folder)
    if gguf_file is not None and "tokenizer.ggml.model" not in _gguf_fields(folder, gguf_file):
        return None
    if gguf_file is None and not list(files.glob("tokenizer*")):
        return None
    # A tokenizer.json is taken as it is: the model families' own classes rebuild it and may add tokens.
    ready = gguf_file is None and (files / "tokenizer.json").is_file()
    reader: Any = PreTrainedTokenizerFast if ready else AutoTokenizer
    try:
        tokenizer = reader.from_pretrained(
            folder, trust_remote_code=False, **({"gguf_file": gguf_file} if gguf_file else {})
        )
    except Exception as error:  # tokenizers raises bare Exception on a malformed file
        raise TokenizerError(f"the tokenizer of {folder} cannot be read: {in_one_line(error)}") from error
    if not getattr(tokenizer, "is_fast", False):
        kind = type(tokenizer).__name__
        raise TokenizerError(f"{kind} of {folder} has no tokenizer.json form; give one with tokenizer=")
    return tokenizer


def _gguf_fields(folder: str, gguf_file: str) -> dict[str, Any]:
    return dict(open_gguf(Path(folder) / gguf_file).fields)


def _set_split_rule(backend: Tokenizer, fields: dict[str, Any]) -> None:
    if fields["tokenizer.ggml.model"].contents() != "gpt2":
        return
    rule = fields["tokenizer.ggml.pre"].contents() if "tokenizer.ggml.pre" in fields else "default"
    backend.pre_tokenizer = _split_rule(rule)


def _split_rule(rule: str) -> PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if rule == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    if rule not in _SPLITS:
        known = ", ".join(["smollm", *_SPLITS])
        raise TokenizerError(
            f"GGUF tokenizer.ggml.pre is {rule!r}, known are {known}; give a tokenizer with tokenizer="
        )
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_SPLITS[rule]), "isolated"), byte_level])


def _eos_ids(
    folder: str, gguf_file: str | None, config: PretrainedConfig, tokenizer_eos: int | None
) -> tuple[int, ...]:
    """All stop ids: the generation config may name more than the model's."""
    named: list[object] = [getattr(config, "eos_token_id", None), tokenizer_eos]
    path = Path(folder) / "generation_config.json"
    if gguf_file is None and path.is_file():
        try:
            named.append(json.loads(path.read_text(encoding="utf-8")).get("eos_token_id"))
        except (OSError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be read: {in_one_line(error)}") from error
    ids: list[object] = []
    for item in named:
        ids += item if isinstance(item, list) else [] if item is None else [item]
    for item in ids:
        if not isinstance(item, int) or isinstance(item, bool):
            raise TokenizerError(f"{folder} names {item!r} as an end-of-sequence token; it must be an id")
    return tuple(dict.fromkeys(typing.cast("list[int]", ids)))


def _adds_bos(backend: Tokenizer, bos_id: int | None) -> bool:
    return bos_id is not None and backend.encode("a").ids[:1] == [bos_id]


def first_difference(left: str, right: str) -> tuple[int, str | None, str | None] | None:
    """First id whose token differs between two tokenizer.json texts, with both tokens; None if all agree."""
    vocabularies = [_tokens(text) for text in (left, right)]
    for index in range(max(len(tokens) for tokens in vocabularies)):
        a, b = (tokens.get(index) for tokens in vocabularies)
        if a != b:
            return index, a, b
    return None


def _tokens(json_text: str) -> dict[int, str]:
    vocabulary = Tokenizer.from_str(json_text).get_vocab(with_added_tokens=True)
    return {index: token for token, index in vocabulary.items()}
