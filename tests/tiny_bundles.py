"""Bundles of tiny random models, made by the real exporter in seconds.

The draft is the target with noise on its weights, so that it agrees with it often but not always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pilotfish.exporter import ExportOptions, FormatChoice, ModelFormats, export

if TYPE_CHECKING:
    from pathlib import Path

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ bos_token + message['role'] + '\n' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token + 'assistant\n' }}{% endif %}"
)
MAX_POSITIONS = 256
BOS, EOS = "<s>", "</s>"


def byte_tokenizer() -> Tokenizer:
    """One token a byte, then <s> (256) and </s> (257): every character but ASCII spans tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(BOS, special=True), AddedToken(EOS, special=True)])
    return tokenizer


def toy_tokenizer(num_words: int) -> Tokenizer:
    """A vocabulary small enough to count: words "w0", "w1", ..., then <s> and </s>."""
    words = {f"w{index}": index for index in range(num_words)}
    tokenizer = Tokenizer(models.WordLevel(words, "w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(BOS, special=True), AddedToken(EOS, special=True)])
    return tokenizer


def save_checkpoint(
    folder: Path, tokenizer: Tokenizer, *, spread: float, noise: float = 0.0, max_positions: int = MAX_POSITIONS
) -> Path:
    """A random two-layer Llama. ``spread`` scales its logits; ``noise``, relative to a weight, is added to all."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_positions,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.token_to_id(BOS),
        eos_token_id=tokenizer.token_to_id(EOS),
    )
    model = LlamaForCausalLM(config)
    model.get_input_embeddings().weight.data.normal_(std=1.0)
    model.lm_head.weight.data.normal_(std=spread)
    generator = torch.Generator().manual_seed(11)
    for weight in model.parameters():
        weight.data += noise * weight.data.std() * torch.randn(weight.shape, generator=generator)
    model.save_pretrained(folder)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, chat_template=CHAT_TEMPLATE
    )
    fast.save_pretrained(folder)
    return folder


def export_pair(
    out: Path,
    target: Path,
    draft: Path | None,
    *,
    linear: str = "int4",
    rest: str = "int8",
    cache_dtype: str = "f16",
) -> Path:
    """Export with one format for the linear layers and one for embedding and lm_head; returns the bundle."""
    formats = ModelFormats(linear=linear, embedding=rest, lm_head=rest)
    options = ExportOptions(
        target=formats, draft=FormatChoice() if draft is None else formats, cache_dtype=cache_dtype, parity=False
    )
    export(str(target), out, draft=None if draft is None else str(draft), options=options)
    return out
