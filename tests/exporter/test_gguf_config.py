"""What a GGUF file's metadata says about the model: all of it reaches the configuration, or is refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tiny_gguf import FAMILIES, llama3_freqs, write_gguf
from tiny_models import save_model, tiny_config
from transformers import AutoModelForCausalLM

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError
from pilotfish.exporter.gguf import open_gguf, read_config
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.reference_model import torch_logits
from pilotfish.exporter.trace import build_on_meta

if TYPE_CHECKING:
    from pathlib import Path

IDS = list(range(1, 120))
_FACTORS = {f"rope_factors_{kind}.weight": np.ones(8, np.float32) for kind in ("long", "short")}
_YARN = {
    "{arch}.rope.scaling.type": "yarn",
    "{arch}.rope.scaling.factor": 4.0,
    "{arch}.rope.scaling.original_context_length": 64,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_computes_what_its_folder_does(family: str, family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = family_checkpoints[family]
    extra = {"rope_freqs.weight": llama3_freqs(folder)} if family == "llama3_rope" else {}
    checkpoint = load_checkpoint(str(write_gguf(folder, tmp_path / "model.gguf", extra=extra)))
    source = checkpoint.source(build_on_meta(checkpoint.config))
    found = torch_logits(checkpoint.config, source.read, source.read, IDS)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([IDS])).logits[0].numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_the_head_size_is_the_files(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", tiny_config("llama", head_dim=32))
    config = read_config(open_gguf(write_gguf(folder, tmp_path / "model.gguf")))
    assert (config.head_dim, config.hidden_size, config.num_attention_heads) == (32, 64, 4)
    path = write_gguf(
        family_checkpoints["llama"],
        tmp_path / "short.gguf",
        fields=dict.fromkeys(("{arch}.attention.key_length", "{arch}.attention.value_length")),
    )
    assert read_config(open_gguf(path)).head_dim == 16


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"rope_type": "default"}),
        ({"{arch}.rope.scaling.type": "none"}, {"rope_type": "default"}),
        (
            {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 4.0},
            {"rope_type": "linear", "factor": 4.0},
        ),
        ({"{arch}.rope.scale_linear": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        ({"{arch}.rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            _YARN,
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "attention_factor": pytest.approx(1 + 0.1 * math.log(4.0)),
                "beta_fast": 32.0,
                "beta_slow": 1.0,
            },
        ),
    ],
)
def test_rope_scaling(
    fields: dict[str, Any], expected: dict[str, Any], family_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    path = write_gguf(family_checkpoints["qwen2"], tmp_path / "model.gguf", fields=fields)
    config = read_config(open_gguf(path))
    assert dict(config.rope_parameters) == {"rope_theta": 10000.0, **expected}
    build_on_meta(config)  # transformers takes it


@pytest.mark.parametrize(
    ("fields", "extra", "message"),
    [
        ({"{arch}.rope.scaling.type": "longrope", "{arch}.rope.scaling.factor": 4.0}, {}, "rope scaling 'longrope'"),
        ({}, {"rope_freqs.weight": np.linspace(1, 9, 8, dtype=np.float32)}, "not Llama 3's"),
        ({}, {"rope_freqs.weight": np.ones(4, np.float32)}, "4 rope factors for 8 frequencies"),
        ({}, {**_FACTORS, "rope_freqs.weight": np.ones(8, np.float32)}, "one kind is known"),
        (
            {"{arch}.rope.scaling.original_context_length": 128},
            {**_FACTORS, "rope_factors_short.weight": np.ones(4, np.float32)},
            "4 rope factors for 8 frequencies in rope_factors_short",
        ),
        ({**_YARN, "{arch}.rope.scaling.yarn_attn_factor": 2.0}, {}, "yarn_attn_factor 2.0; supported is 1.139"),
        ({"{arch}.rope.scaling.attn_factor": 2.0}, {}, "attn_factor 2.0 with default rope scaling"),
        ({"{arch}.attention.causal": False}, {}, r"llama\.attention\.causal = False, which is not known"),
        ({"{arch}.logit_scale": 0.5}, {}, r"llama\.logit_scale = 0\.5, which is not known of this architecture"),
        ({"{arch}.rope.dimension_count": 8}, {}, "rotates 8 of 16 dimensions"),
        ({"{arch}.attention.value_length": 8}, {}, "keys and values of different sizes"),
        ({"{arch}.attention.head_count_kv": [2, 4]}, {}, "layers with different attention.head_count_kv"),
        ({"{arch}.expert_count": 4}, {}, "mixture of experts"),
    ],
)
def test_what_cannot_be_expressed_is_refused(
    fields: dict[str, Any],
    extra: dict[str, Any],
    message: str,
    family_checkpoints: dict[str, Path],
    tmp_path: Path,
) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", fields=fields, extra=extra)
    with pytest.raises(UnsupportedModelError, match=message):
        load_checkpoint(str(path))


def test_an_unknown_architecture_is_told_the_known_ones(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", fields={"general.architecture": "rwkv7"})
    with pytest.raises(
        UnsupportedModelError, match=r"'rwkv7'; those of llama, .*gemma3.* are read\. Export the folder"
    ):
        load_checkpoint(str(path))


def test_factors_by_length_come_in_pairs(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    extra = {"rope_factors_long.weight": np.ones(8, np.float32)}
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", extra=extra)
    with pytest.raises(CheckpointError, match=r"no tensor rope_factors_short\.weight"):
        load_checkpoint(str(path))


def test_a_missing_key_is_named(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", fields={"{arch}.block_count": None})
    with pytest.raises(CheckpointError, match=r"metadata lacks llama\.block_count"):
        load_checkpoint(str(path))


def test_the_rows_of_the_embedding_are_the_vocabulary(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", fields={"{arch}.vocab_size": 300})
    assert read_config(open_gguf(path)).vocab_size == 258
