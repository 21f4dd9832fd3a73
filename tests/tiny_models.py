"""Tiny random checkpoints of the families that must export, with a one-token-a-byte tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tiny_bundles import BOS, EOS, byte_tokenizer
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

if TYPE_CHECKING:
    from pathlib import Path

FAMILIES = ("llama", "llama_tied", "llama3_rope", "qwen2", "qwen3", "mistral_window")
NUM_LAYERS = 2
_SHAPE = {
    "vocab_size": 258,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def tiny_config(family: str, **changes: Any) -> PretrainedConfig:
    kind, extra = {
        "llama": (LlamaConfig, {}),
        "llama_tied": (LlamaConfig, {"tie_word_embeddings": True}),
        "llama3_rope": (LlamaConfig, {"rope_parameters": _LLAMA3_ROPE}),
        "qwen2": (Qwen2Config, {}),
        "qwen3": (Qwen3Config, {"head_dim": 32}),  # heads x head_dim is not hidden_size
        "mistral_window": (MistralConfig, {"sliding_window": 24}),
    }[family]
    return kind(**{**_SHAPE, **extra, **changes})


def save_model(folder: Path, config: PretrainedConfig, *, tokenizer: bool = True) -> Path:
    """A random model whose biases and norms are not the trivial ones, saved as safetensors."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.data.normal_(std=0.3)
        elif weight.ndim == 1:
            weight.data.uniform_(0.5, 1.5)
        else:
            weight.data.normal_(std=0.15)
    model.save_pretrained(folder)
    if tokenizer:
        save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path, **changes: Any) -> None:
    names = {"bos_token": BOS, "eos_token": EOS, **changes}
    PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), **names).save_pretrained(folder)
