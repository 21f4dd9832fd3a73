"""The target's values against what an export packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.exporter.contract import FORMATS
from pilotfish.exporter.options import ModelFormats
from pilotfish.exporter.packing import pack, pack_float, unpack
from pilotfish.exporter.quantise import quantise
from pilotfish.exporter.sources import SafetensorsSource
from pilotfish.exporter.training.stored_weights import store_as

if TYPE_CHECKING:
    from pathlib import Path


def packed_and_unpacked(weight: torch.Tensor, format_name: str) -> np.ndarray:
    rows = weight.detach().numpy()
    packed = (
        pack_float(rows, format_name)
        if format_name in ("f16", "f32")
        else pack(quantise(rows, format_name), format_name)
    )
    return unpack(packed, *rows.shape, format_name)


@pytest.mark.parametrize("format_name", FORMATS)
def test_projections_are_the_bundles(target_folder: Path, format_name: str) -> None:
    model = LlamaForCausalLM.from_pretrained(target_folder)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    store_as(model, ModelFormats(format_name, "f32", "f32"), SafetensorsSource(target_folder))
    for name, tensor in model.state_dict().items():
        if "proj" in name:
            np.testing.assert_array_equal(tensor.numpy(), packed_and_unpacked(before[name], format_name))
        else:
            assert torch.equal(tensor, before[name])


def test_tied_head_of_another_format_is_untied(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    weight = model.lm_head.weight.detach().clone()
    model.save_pretrained(tmp_path)
    store_as(model, ModelFormats("f32", "int8", "int4"), SafetensorsSource(tmp_path))
    np.testing.assert_array_equal(model.lm_head.weight.detach().numpy(), packed_and_unpacked(weight, "int4"))
    np.testing.assert_array_equal(model.model.embed_tokens.weight.detach().numpy(), packed_and_unpacked(weight, "int8"))
