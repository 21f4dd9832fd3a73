"""Tiny random checkpoints of the families that must export, with a one-token-a-byte tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
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
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pilotfish.exporter.model_check import text_config

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
    save_random(folder, config)
    if tokenizer:
        save_tokenizer(folder)
    return folder


def save_random(folder: Path, config: PretrainedConfig, *, is_whole: bool = False) -> Path:
    """The same without a tokenizer; is_whole: a model of several parts, of which tensors of text are saved."""
    torch.manual_seed(3)
    text = config.text_config if is_whole else config
    if is_whole and type(text) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        text = text_config(config, str(folder))
    model = AutoModelForCausalLM.from_config(text)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.data.normal_(std=0.3)
        elif weight.ndim == 1:
            weight.data.uniform_(0.5, 1.5)
        else:
            weight.data.normal_(std=0.15)
    if not is_whole:
        model.save_pretrained(folder)
        return folder
    config.save_pretrained(folder)
    tensors = {_whole_name(name): value.contiguous() for name, value in model.state_dict().items()}
    if text.tie_word_embeddings:
        tensors.pop("lm_head.weight")
    save_file({**tensors, "vision_tower.patch.weight": torch.ones(4, 4)}, folder / "model.safetensors")
    return folder


def _whole_name(name: str) -> str:
    """Where a tensor of the text is in a model of several parts."""
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def save_tokenizer(folder: Path, **changes: Any) -> None:
    names = {"bos_token": BOS, "eos_token": EOS, **changes}
    PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), **names).save_pretrained(folder)
