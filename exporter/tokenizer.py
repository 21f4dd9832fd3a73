"""A checkpoint's tokenizer as tokenizer.json, its special and stop ids, and its chat template."""

from __future__ import annotations

import json
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerFast

from .errors import CheckpointError, ExportError, TokenizerError, in_one_line
from .gguf import build_tokenizer, stop_ids

if TYPE_CHECKING:
    from pathlib import Path

    from .gguf import GgufFile


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
    tool_template: str | None = None  # for conversations with tools, where the checkpoint has one of its own
    warning: str | None = None  # what is not known about it


def load_tokenizer(folder: Path, config: PretrainedConfig) -> TokenizerInfo | None:
    """Reads the tokenizer beside a checkpoint; None if the checkpoint has none.

    Raises:
        TokenizerError: a slow-only tokenizer, no end-of-sequence id, or named chat templates without a default one.
    """
    tokenizer = _read(folder)
    if tokenizer is None:
        return None
    backend: Tokenizer = tokenizer.backend_tokenizer
    backend.no_truncation()  # both are of batches for training; transformers too sets them anew for each call
    backend.no_padding()
    chat_template, tool_template = _templates(folder, tokenizer.chat_template)
    return TokenizerInfo(
        json_text=backend.to_str(),
        size=backend.get_vocab_size(with_added_tokens=True),
        bos_id=tokenizer.bos_token_id,
        eos_ids=_required(_eos_ids(folder, config, tokenizer.eos_token_id), folder),
        pad_id=tokenizer.pad_token_id,
        add_bos=_adds_bos(backend, tokenizer.bos_token_id),
        chat_template=chat_template,
        tool_template=tool_template,
    )


def _templates(folder: Path, templates: str | dict[str, str] | None) -> tuple[str | None, str | None]:
    """The chat template, and the one for conversations with tools: a checkpoint may have a list of named templates."""
    if not isinstance(templates, dict):
        return templates, None
    if "default" not in templates:
        names = ", ".join(sorted(templates))
        raise TokenizerError(f'{folder} has the chat templates {names} and none named "default"; name one of them so')
    return templates["default"], templates.get("tool_use")


def load_gguf_tokenizer(file: GgufFile) -> TokenizerInfo | None:
    """Reads the tokenizer inside a GGUF file; None if it has none.

    Raises:
        TokenizerError: a kind of vocabulary or a splitting rule that is not known, or no end-of-sequence id.
    """
    try:
        built = build_tokenizer(file)
    except ExportError:
        raise
    except Exception as error:  # whatever tokenizers and numpy raise on fields of another type
        raise TokenizerError(f"the tokenizer of {file.path} cannot be read: {in_one_line(error)}") from error
    if built is None:
        return None
    return TokenizerInfo(
        json_text=built.backend.to_str(),
        size=built.backend.get_vocab_size(with_added_tokens=True),
        bos_id=file.fields.get("tokenizer.ggml.bos_token_id"),
        eos_ids=_required(stop_ids(file), file.path),
        pad_id=file.fields.get("tokenizer.ggml.padding_token_id"),
        add_bos=built.add_bos,
        chat_template=file.fields.get("tokenizer.chat_template"),
        tool_template=file.fields.get("tokenizer.chat_template.tool_use"),
        warning=built.warning,
    )


def _required(eos_ids: tuple[int, ...], where: Path) -> tuple[int, ...]:
    if not eos_ids:
        raise TokenizerError(f"{where} names no end-of-sequence token in its config, generation config or tokenizer")
    return eos_ids


def _read(folder: Path) -> Any:
    """The tokenizer as transformers reads it, None if there is none."""
    if not list(folder.glob("tokenizer*")):
        return None
    # A tokenizer.json is taken as it is: the model families' own classes rebuild it and may add tokens.
    reader: Any = PreTrainedTokenizerFast if (folder / "tokenizer.json").is_file() else AutoTokenizer
    try:
        tokenizer = reader.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # tokenizers raises bare Exception on a malformed file
        raise TokenizerError(f"the tokenizer of {folder} cannot be read: {in_one_line(error)}") from error
    if not getattr(tokenizer, "is_fast", False):
        kind = type(tokenizer).__name__
        raise TokenizerError(f"{kind} of {folder} has no tokenizer.json form; give one with tokenizer=")
    return tokenizer


def _eos_ids(folder: Path, config: PretrainedConfig, tokenizer_eos: int | None) -> tuple[int, ...]:
    """All stop ids: the generation config may name more than the model's, as the whole of which it is the text part."""
    named: list[object] = [getattr(config, "eos_token_id", None), tokenizer_eos]
    for path in (folder / "config.json", folder / "generation_config.json"):
        if path.is_file():  # most checkpoints without chat have no generation config
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
