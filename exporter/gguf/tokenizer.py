"""The tokenizer inside a GGUF file, built with the tokenizers library and with the file's own ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from pilotfish.exporter.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

    from .file import GgufFile

_NORMAL, _CONTROL, _USER_DEFINED, _BYTE = 1, 3, 4, 6  # tokenizer.ggml.token_type
_PREFIX = "tokenizer.ggml."
_SPACE = "\u2581"
# GPT-2's rule for byte-level vocabularies; those of StarCoder's kind cut digits off first.
_GPT2 = ("gpt-2", "gpt2", "default", "phi-2", "olmo", "jais", "mpt", "gigachat", "exaone4", "granite-docling")
_DIGITS_FIRST = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_SAME_AS = {"stablelm2": "qwen2", "hunyuan": "qwen2", "chatglm-bpe": "llama-bpe", "glm4": "llama-bpe"}
# Rules under which a word that is a token stays whole, whatever the merges say, and a text begins with the bos token.
_WHOLE_WORDS = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken", "glm4"),
)
_BEGINS_TEXT = ("llama3", "llama-v3", "llama-bpe", "tekken", "pixtral")
_OF_PHI3 = re.compile(r"</s>|<\|(?!endoftext\|>).*")  # marked tokens that take the white space behind them
_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_STOP_TOKENS = (  # by which the known chat formats end a turn or a text
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<turn|>",
    "<end_of_utterance>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",  # DeepSeek's, with wide bars
    "<|return|>",
    "<|call|>",
    "<EOT>",
)


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """A tokenizer and what its file says about it."""

    backend: Tokenizer
    add_bos: bool
    warning: str | None


def stop_ids(file: GgufFile) -> tuple[int, ...]:
    """The ids of every token that ends a text or turn: those that the metadata names, then those with a known name."""
    tokens, kinds = _tokens(file), _kinds(file)
    named = [file.fields.get(_PREFIX + key) for key in _STOP_KEYS]
    known = set(_STOP_TOKENS)
    marked = [
        index for index, token in enumerate(tokens) if token in known and kinds[index] in (_CONTROL, _USER_DEFINED)
    ]
    return tuple(dict.fromkeys(int(found) for found in (*named, *marked) if found is not None))


def build_tokenizer(file: GgufFile) -> GgufTokenizer | None:
    """The file's tokenizer, None if it has none.

    Raises:
        TokenizerError: a kind of vocabulary or a splitting rule that is not known.
    """
    kind = file.fields.get(_PREFIX + "model")
    if kind is None:
        return None
    rule, warning = "", None
    if kind == "gpt2":
        rule = str(file.fields.get(_PREFIX + "pre", "default"))
        backend = _byte_level(file, rule)
        if _PREFIX + "pre" not in file.fields:
            warning = (
                f"{file.path.name} does not say how its tokenizer splits text (tokenizer.ggml.pre is missing): GPT-2's "
                "rule is taken, and other tokens than the model's may come out; name its own tokenizer with --tokenizer"
            )
    elif kind == "llama":
        backend = _sentence_piece(file)
    elif kind == "gemma4":
        backend = _merged_pieces(file)
    else:
        raise TokenizerError(f"{file.path} has a tokenizer of kind {kind!r}, known are 'gpt2', 'llama' and 'gemma4'")
    _add_marked(backend, file)
    add_bos = bool(file.fields.get(_PREFIX + "add_bos_token", kind == "llama" or rule in _BEGINS_TEXT))
    add_bos = add_bos and file.fields.get(_PREFIX + "bos_token_id") is not None
    if add_bos:
        bos_id = int(file.fields[_PREFIX + "bos_token_id"])
        bos = _tokens(file)[bos_id]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, bos_id)]
        )
    return GgufTokenizer(backend, add_bos, warning)


def _tokens(file: GgufFile) -> list[str]:
    return list(file.fields.get(_PREFIX + "tokens", ()))


def _kinds(file: GgufFile) -> list[int]:
    """What each token is; all are plain in a file that does not say."""
    return list(file.fields.get(_PREFIX + "token_type", ())) or [_NORMAL] * len(_tokens(file))


def _vocabulary(file: GgufFile) -> dict[str, int]:
    return {token: index for index, token in enumerate(_tokens(file))}


def _byte_level(file: GgufFile, rule: str) -> Tokenizer:
    merges = [tuple(merge.split(" ", 1)) for merge in file.field(_PREFIX + "merges")]
    backend = Tokenizer(models.BPE(_vocabulary(file), merges, ignore_merges=rule in _WHOLE_WORDS))
    backend.pre_tokenizer = split_rule(rule)
    backend.decoder = decoders.ByteLevel()
    return backend


def split_rule(rule: str) -> PreTokenizer:
    """How text is cut before the merges, by the name in tokenizer.ggml.pre.

    Raises:
        TokenizerError: a name that is not known.
    """
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if rule in _GPT2:
        return words
    if rule in _DIGITS_FIRST:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    pattern = GGUF_PRE_TOKENIZER_SPLITS.get(_SAME_AS.get(rule, rule))
    if pattern is not None:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), whole])
    known = ", ".join(sorted({*_GPT2, *_DIGITS_FIRST, *_SAME_AS, *GGUF_PRE_TOKENIZER_SPLITS}))
    raise TokenizerError(f"GGUF tokenizer.ggml.pre is {rule!r}, known are {known}; give a tokenizer with tokenizer=")


def _sentence_piece(file: GgufFile) -> Tokenizer:
    """Merges are not in the file: a pair is joined where the joined text is a token, the best scored first."""
    vocabulary = _vocabulary(file)
    merges = _implied_merges(file, vocabulary)
    unknown = file.fields.get(_PREFIX + "unknown_token_id")
    tokens = _tokens(file)
    backend = Tokenizer(
        models.BPE(
            vocabulary,
            merges,
            unk_token=None if unknown is None else tokens[int(unknown)],
            fuse_unk=True,
            byte_fallback=_BYTE in _kinds(file),
        )
    )
    prefixed = bool(file.fields.get(_PREFIX + "add_space_prefix", True))
    before: list[Any] = [normalizers.Prepend(_SPACE)] if prefixed else []
    after: list[Any] = [decoders.Strip(" ", 1, 0)] if prefixed else []
    backend.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", _SPACE)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *after]
    )
    return backend


def _merged_pieces(file: GgufFile) -> Tokenizer:
    """Pieces of SentencePiece's kind whose merges are in the file; line breaks are apart from other text."""
    merges = [tuple(merge.split(" ", 1)) for merge in file.field(_PREFIX + "merges")]
    unknown, tokens = file.fields.get(_PREFIX + "unknown_token_id"), _tokens(file)
    name = None if unknown is None else tokens[int(unknown)]
    has_bytes = _BYTE in _kinds(file)
    backend = Tokenizer(models.BPE(_vocabulary(file), merges, unk_token=name, fuse_unk=True, byte_fallback=has_bytes))
    backend.normalizer = normalizers.Replace(" ", _SPACE)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    backend.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


def _implied_merges(file: GgufFile, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    scores, kinds = file.field(_PREFIX + "scores"), _kinds(file)
    if file.architecture.startswith("gemma"):  # whose scores do not follow the order of its merges, as its ids do
        scores = range(0, -len(scores), -1)
    found = []
    for token, index in vocabulary.items():
        if kinds[index] == _NORMAL:
            pairs = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
            joined = [pair for pair in pairs if all(_is_plain(part, vocabulary, kinds) for part in pair)]
            found += [(-scores[index], index, *(vocabulary[part] for part in pair), pair) for pair in joined]
    return [pair for *_, pair in sorted(found)]


def _is_plain(text: str, vocabulary: dict[str, int], kinds: list[int]) -> bool:
    return text in vocabulary and kinds[vocabulary[text]] == _NORMAL


def _takes_space(file: GgufFile, token: str) -> bool:
    """Whether white space behind a marked token is a part of it; no field says so of Phi-3's."""
    is_phi3 = file.architecture == "phi3" and file.fields.get(_PREFIX + "model") == "llama"
    return is_phi3 and _OF_PHI3.fullmatch(token) is not None


def _add_marked(backend: Tokenizer, file: GgufFile) -> None:
    """Control and user-defined tokens are found in a text before anything else; they keep their ids."""
    special, plain = [], []
    for token, kind in zip(_tokens(file), _kinds(file), strict=True):
        takes_space = _takes_space(file, token)
        if kind == _CONTROL:
            special.append(AddedToken(token, normalized=False, special=True, rstrip=takes_space))
        elif kind == _USER_DEFINED:
            plain.append(AddedToken(token, normalized=False, special=False, rstrip=takes_space))
    backend.add_special_tokens(special)
    backend.add_tokens(plain)
