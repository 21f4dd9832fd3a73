"""A tiny target with a tokenizer and a chat template, and options of a training run of some seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pilotfish.exporter.training import (
    DraftShape,
    EagleShape,
    MedusaShape,
    SelfText,
    SpeculatorShape,
    Stage,
    TrainOptions,
    TrainResult,
)

if TYPE_CHECKING:
    from pathlib import Path

MakeOptions = Callable[..., TrainOptions]
TrainedHead = Callable[[str], TrainResult]

HEADS = {
    "medusa": MedusaShape(num_heads=3, num_blocks=2),
    "medusa-own-output": MedusaShape(num_heads=2, num_blocks=1, own_output=True),
    "medusa-taps": MedusaShape(num_heads=3, taps=(1, 0)),
    "mlp": SpeculatorShape(num_stages=3, inner_dim=32),
    "mlp-untied": SpeculatorShape(num_stages=2, inner_dim=64, tie_weights=False, taps=(1,)),
    "eagle": EagleShape(version=1, unroll=2, noise=0.05, regression=1.0, ffn_size=32),
    "eagle3": EagleShape(taps=(0, 1, 2), unroll=3, ffn_size=32, draft_vocab=40),
    "eagle3-all-ids": EagleShape(taps=(1, 0, 2), unroll=2, ffn_size=32, num_heads=2, num_kv_heads=1),
}
TEXT_ONLY = {"text": Stage(48, 12, 1e-2, 2), "self_text": Stage(48, 0, 1e-3, 0)}

WORDS = [f"w{index}" for index in range(57)]
SPECIAL = ["<unk>", "<s>", "<e>", "user", "assistant"]
TEMPLATE = (
    "{% for message in messages %}<s> {{ message['role'] }} {{ message['content'] }} <e> {% endfor %}"
    "{% if add_generation_prompt %}<s> assistant {% endif %}"
)


def save_target(folder: Path, template: str | None = TEMPLATE) -> Path:
    """A random Llama whose next token is a peaked function of the last ones."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(SPECIAL) + len(WORDS) + 2,  # two rows of padding
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config)
    model.lm_head.weight.data.normal_(std=0.25)
    model.lm_head.weight.data[2] = -0.05  # the stop token is rare, so answers have some length
    model.get_input_embeddings().weight.data.normal_(std=0.5)
    model.save_pretrained(folder)
    vocab = {token: index for index, token in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocab, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<s>", "<e>"])
    names = {"bos_token": "<s>", "eos_token": "<e>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template, **names)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_options(**changes: Any) -> TrainOptions:
    """Options of a run of some seconds; keyword arguments replace and complete them."""
    values: dict[str, Any] = {
        "shape": DraftShape(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, ffn_size=32),
        "text": Stage(length=48, steps=20, learning_rate=1e-2, warmup_steps=2),
        "self_text": Stage(length=48, steps=6, learning_rate=5e-3, warmup_steps=1),
        "writing": SelfText(tokens=400, batch=16, prompt_tokens=30, answer_tokens=18),
        "batch_tokens": 576,
        "device": "cpu",
        "evaluate_every": 10,
        "checkpoint_every": 5,
        "data_licence": "CC0-1.0",
    }
    return TrainOptions(**{**values, **changes, "target": str(changes["target"])})
