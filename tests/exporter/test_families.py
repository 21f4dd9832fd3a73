"""Each family's exported graph: its shape, its ports, and its logits against transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
import torch
from tiny_models import FAMILIES, NUM_LAYERS
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, ExportResult, ModelFormats, contract, export
from pilotfish.exporter.parity import graph_logits, parity_ids

if TYPE_CHECKING:
    from pathlib import Path

NUM_TOKENS = 96
F32 = ModelFormats("f32", "f32", "f32")


@pytest.fixture(scope="module", params=FAMILIES)
def exported(
    request: pytest.FixtureRequest, family_checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ExportResult]:
    out = tmp_path_factory.mktemp(request.param) / "bundle"
    options = ExportOptions(target=F32, cache_dtype="f32", parity=False)
    return request.param, export(str(family_checkpoints[request.param]), out, options=options)


def test_a_layer_is_five_nodes(exported: tuple[str, ExportResult]) -> None:
    _, result = exported
    graph = ir.load(result.folder / "target.onnx").graph
    layer = ["Linear", "PagedAttention", "Linear", "Linear", "Linear"]
    assert [node.op_type for node in graph] == ["Embedding", *layer * NUM_LAYERS, "GatherRows", "Linear"]
    assert result.models[0].num_nodes == 5 * NUM_LAYERS + 3


def test_every_layer_is_wired_alike(exported: tuple[str, ExportResult]) -> None:
    family, result = exported
    nodes = list(ir.load(result.folder / "target.onnx").graph)
    for layer in range(NUM_LAYERS):
        qkv, attention, o, gate_up, down = nodes[1 + 5 * layer : 6 + 5 * layer]
        x = nodes[5 * layer].outputs[0]
        names = [None if value is None else value.name for value in qkv.inputs]
        bias = f"layers.{layer}.qkv_bias" if family == "qwen2" else None
        assert names == [x.name, f"layers.{layer}.qkv", bias, f"layers.{layer}.input_norm", None]
        assert [value.name for value in attention.inputs[1:10]] == [
            *contract.ATTENTION_INPUTS,
            "cos",
            "sin",
            contract.key_cache(layer),
            contract.value_cache(layer),
        ]
        has_norms = [value is not None for value in attention.inputs[10:]]
        assert has_norms == ([True] * 2 if family == "qwen3" else [])
        assert attention.attributes["sliding_window"].as_int() == (24 if family == "mistral_window" else 0)
        assert o.inputs[4] is x
        assert gate_up.attributes["activation"].as_string() == "swiglu"
        assert gate_up.inputs[3].name == f"layers.{layer}.post_norm"
        assert down.inputs[4] is o.outputs[0]


def test_ports_follow_the_contract(exported: tuple[str, ExportResult]) -> None:
    _, result = exported
    graph = ir.load(result.folder / "target.onnx").graph
    inputs = [value for value in graph.inputs if value.name not in graph.initializers]
    shared = inputs[: len(contract.INPUTS)]
    for value, port in zip(shared, contract.INPUTS, strict=True):
        assert (value.name, value.dtype.name.lower()) == (port.name, port.dtype)
        assert [axis.value if hasattr(axis, "value") else axis for axis in value.shape] == list(port.axes)
    caches = [name(layer) for layer in range(NUM_LAYERS) for name in (contract.key_cache, contract.value_cache)]
    assert [value.name for value in inputs[len(shared) :]] == caches
    assert [value.name for value in graph.outputs] == ["logits"]


def test_every_initializer_is_listed_and_aligned(exported: tuple[str, ExportResult]) -> None:
    _, result = exported
    model = result.manifest.models["target"]
    graph = ir.load(result.folder / "target.onnx").graph
    assert set(graph.initializers) == {tensor.name for tensor in model.tensors}
    end = 0
    for tensor in model.tensors:
        assert tensor.offset % contract.TENSOR_ALIGNMENT == 0
        assert tensor.offset >= end
        end = tensor.offset + tensor.bytes
    assert end == model.weights.bytes
    assert sum("embedding" in tensor.name or "lm_head" in tensor.name for tensor in model.tensors) == (
        1 if exported[0] == "llama_tied" else 2
    )


def test_logits_equal_transformers(exported: tuple[str, ExportResult], family_checkpoints: dict[str, Path]) -> None:
    family, result = exported
    tokenizer = (result.folder / "tokenizer.json").read_text(encoding="utf-8")
    ids = parity_ids(tokenizer, NUM_TOKENS)
    found = graph_logits(result.folder / "target.onnx", ids, "f32")
    model = AutoModelForCausalLM.from_pretrained(family_checkpoints[family], attn_implementation="eager")
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(found, expected, atol=2e-4, rtol=2e-4)


def test_dimensions_in_the_manifest(exported: tuple[str, ExportResult]) -> None:
    family, result = exported
    model = result.manifest.models["target"]
    assert (model.num_layers, model.hidden_size, model.intermediate_size, model.vocab_size) == (NUM_LAYERS, 64, 96, 258)
    assert (model.num_heads, model.num_kv_heads, model.head_dim) == (4, 2, 32 if family == "qwen3" else 16)
    assert model.sliding_window == (24 if family == "mistral_window" else 0)
    assert model.max_positions == 256


@pytest.mark.parametrize(
    ("family", "linear"),
    [
        *(("llama_tied", linear) for linear in ("int4", "int4_asym", "int8", "f16")),
        ("qwen2", "int4_asym"),
        ("qwen2", "f16"),
        ("qwen3", "int4"),
    ],
)
def test_parity_holds_in_every_format(
    family: str, linear: str, family_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    formats = ModelFormats(linear, linear, "f16" if linear == "f16" else "int8")
    options = ExportOptions(target=formats, parity_tokens=64)
    result = export(str(family_checkpoints[family]), tmp_path / "bundle", options=options)
    parity = result.models[0].parity
    assert parity.kl < (1e-4 if linear == "f16" else 0.02)
    assert parity.top1_agreement > 0.8
    assert parity.num_tokens == 64
    assert result.manifest.models["target"].parity["kl"] == parity.kl


@pytest.mark.parametrize(("cache_dtype", "limit"), [("f32", 1e-9), ("f16", 1e-6), ("int8", 2e-4)])
def test_parity_holds_in_every_cache(
    cache_dtype: str, limit: float, family_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """Beside weights of f32 a cache's rounding is all that there is."""
    options = ExportOptions(target=F32, cache_dtype=cache_dtype, parity_tokens=64)
    result = export(str(family_checkpoints["qwen3"]), tmp_path / "bundle", options=options)
    assert result.manifest.models["target"].cache_dtype == cache_dtype
    assert result.models[0].parity.kl < limit
