"""Layers of one kind are traced once: the bundle is the one that tracing every layer gives, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tiny_heads
import torch
import transformers
from architectures import ARCHITECTURES, SHAPE, config_of
from tiny_models import save_model, save_random, save_tokenizer, tiny_config

from pilotfish.exporter import ExportOptions, ModelFormats, export, model_export
from pilotfish.exporter.layer_kinds import NotRepeatableError, layer_kinds
from pilotfish.exporter.model_check import text_config
from pilotfish.exporter.trace import build_on_meta, trace, trace_whole

if TYPE_CHECKING:
    from pathlib import Path

F32 = ModelFormats("f32", "f32", "f32")
NUM_LAYERS = 5
MIXED = ("sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention")
LAYERS_OF: dict[str, dict[str, Any]] = {
    "Gemma 3": {"layer_types": list(MIXED)},
    "Cohere 2": {"layer_types": list(MIXED)},
    "SmolLM3": {"no_rope_layers": [1, 1, 0, 1, 0]},
    "Ministral 3": {},
    "GPT-J": {"n_layer": NUM_LAYERS},
    "StableLM 2 12B": {},
}


def deep(name: str) -> transformers.PretrainedConfig:
    """An architecture of the table with more layers."""
    kind, changes, _ = ARCHITECTURES[name]
    values = changes if "n_embd" in changes else {**SHAPE, "num_hidden_layers": NUM_LAYERS, **changes}
    config: transformers.PretrainedConfig = getattr(transformers, kind)(**{**values, **LAYERS_OF[name]})
    assert config.num_hidden_layers == NUM_LAYERS
    return config


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def both_ways(checkpoint: Path, folder: Path, patch: pytest.MonkeyPatch, **given: Any) -> list[dict[str, bytes]]:
    """The files of a bundle whose layers are repeated, and of one whose layers are all traced."""
    options = ExportOptions(target=F32, cache_dtype="f32", parity=False)
    found = []
    for way in (trace, lambda model, _note: trace_whole(model)):
        patch.setattr(model_export, "trace", way)
        found.append(files_of(export(str(checkpoint), folder / str(len(found)), options=options, **given).folder))
    return found


@pytest.mark.parametrize("name", LAYERS_OF)
def test_a_bundle_is_the_same_as_with_every_layer_traced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = save_random(tmp_path / "model", deep(name))
    save_tokenizer(checkpoint)
    repeated, whole = both_ways(checkpoint, tmp_path, monkeypatch)
    assert {"target.onnx", "target.bin", "manifest.json"} <= set(repeated)
    assert repeated == whole


def test_taps_of_a_head_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = save_model(tmp_path / "model", tiny_config("llama", num_hidden_layers=NUM_LAYERS))
    tensors, config = tiny_heads.eagle3()
    head = tiny_heads.save_head(tmp_path / "head", tensors, config | {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]})
    repeated, whole = both_ways(checkpoint, tmp_path, monkeypatch, head=str(head))
    assert b"aux_hidden" in repeated["target.onnx"]
    assert repeated == whole


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_can_be_repeated(name: str) -> None:
    """Two layers are of one kind, or of two where the configuration says so; of more, caches may differ too."""
    config = text_config(config_of(name), name)
    first = layer_kinds(build_on_meta(config)).first
    same = (0,) * len(first)
    stated = list(zip(*(getattr(config, key, None) or same for key in ("layer_types", "no_rope_layers")), strict=True))
    assert [stated[index] for index in first] == stated
    if len(first) == 2:
        assert first == ((0, 0) if stated[0] == stated[1] else (0, 1))
    assert len(first) == 2 or len(set(first)) < len(first)


def test_a_layer_that_computes_with_its_index_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = transformers.models.llama.modeling_llama.LlamaAttention
    forward = attention.forward

    def scaled(self: Any, hidden_states: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        return forward(self, hidden_states / (self.layer_idx + 1), *arguments, **options)

    monkeypatch.setattr(attention, "forward", scaled)
    model = build_on_meta(tiny_config("llama"))
    notes: list[str] = []
    traced = trace(model, notes.append)
    assert [note.rpartition(": ")[2] for note in notes] == ["they compute with their own index"]
    assert sum(node.op_type == "Attention" for node in traced.graph) == model.config.num_hidden_layers


def refused(change: Any) -> str:
    model = build_on_meta(tiny_config("llama"))
    change(model.model.layers)
    with pytest.raises(NotRepeatableError) as found:
        layer_kinds(model)
    return str(found.value)


def test_what_cannot_be_compared_is_not_repeated() -> None:
    def share(layers: Any) -> None:
        layers[1].mlp.up_proj.weight = layers[0].mlp.up_proj.weight

    def add(layers: Any) -> None:
        layers[1].mlp.table = object()

    def hook(layers: Any) -> None:
        layers[1].mlp.register_forward_hook(lambda *_: None)

    def skip(layers: Any) -> None:
        layers[1] = layers[0]

    assert "layers.1.mlp.up_proj.weight is the tensor model.layers.0.mlp.up_proj.weight" in refused(share)
    assert "mlp.table is a object, which cannot be compared" in refused(add)
    assert "mlp has hooks" in refused(hook)
    assert "not called once each" in refused(skip)


def test_layers_that_differ_in_a_number_are_two_kinds() -> None:
    model = build_on_meta(tiny_config("llama", num_hidden_layers=4))
    model.model.layers[2].self_attn.scaling *= 2
    model.model.layers[3].mlp.act_fn = torch.nn.ReLU()
    assert layer_kinds(model).first == (0, 0, 2, 3)
