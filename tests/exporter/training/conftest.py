"""A tiny target with a tokenizer and a chat template on disk, and text in its words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pilotfish.exporter.training import DraftShape, SelfText, Stage, TrainDraftOptions

WORDS = [f"w{index}" for index in range(57)]
SPECIAL = ["<unk>", "<s>", "<e>", "user", "assistant"]
TEMPLATE = (
    "{% for message in messages %}<s> {{ message['role'] }} {{ message['content'] }} <e> {% endfor %}"
    "{% if add_generation_prompt %}<s> assistant {% endif %}"
)


@pytest.fixture(autouse=True)
def fresh_processes():
    """Accelerate keeps its processes in class attributes; every test begins without them."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()
    GradientState._reset_state()


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
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<s>", "<e>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="<e>", unk_token="<unk>", chat_template=template
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory) -> Path:
    return save_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory) -> Path:
    """About 12,000 tokens."""
    chooser = random.Random(3)
    lines = [" ".join(chooser.choices(WORDS, k=12)) for _ in range(1000)]
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def make_options(target_folder, text_file, tmp_path):
    """Options of a run of a second or two; keyword arguments replace them."""

    def make(**changes) -> TrainDraftOptions:
        values = {
            "target": str(target_folder),
            "data": text_file,
            "out": tmp_path / "draft",
            "shape": DraftShape(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, ffn_size=32),
            "text": Stage(length=48, steps=20, learning_rate=1e-2, warmup_steps=2),
            "self_text": Stage(length=48, steps=8, learning_rate=5e-3, warmup_steps=1),
            "writing": SelfText(tokens=2000, batch=32, prompt_tokens=30, answer_tokens=18),
            "batch_tokens": 576,
            "device": "cpu",
            "evaluate_every": 10,
            "checkpoint_every": 5,
            "data_licence": "CC0-1.0",
        }
        return TrainDraftOptions(**{**values, **changes})

    return make
