"""Every family of GGUF files: read by the exporter and a second time, both give transformers' logits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gguf_families import GGUF_FAMILIES
from tiny_gguf import gguf_config, write_family
from tiny_models import save_random, save_tokenizer
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, ModelFormats, export
from pilotfish.exporter.errors import CheckpointError, ExportError, UnsupportedModelError
from pilotfish.exporter.gguf import GgufReference, open_gguf, read_config
from pilotfish.exporter.gguf.families import FAMILIES
from pilotfish.exporter.gguf.reference_families import COMPUTATIONS
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.parity import graph_logits
from pilotfish.exporter.reference_model import torch_logits
from pilotfish.exporter.trace import build_on_meta

if TYPE_CHECKING:
    from pathlib import Path

IDS = [(7 * index + index * index // 5) % 256 for index in range(120)]
F32 = ModelFormats("f32", "f32", "f32")
EXPORTED = ("Phi-3.5, Phi-4-mini", "GPT-2")  # the others are slow
EVERY = [name if name in EXPORTED else pytest.param(name, marks=pytest.mark.slow) for name in GGUF_FAMILIES]
FUSED = ("Llama", "Qwen 2", "GLM-4")  # with and without pairs and biases
WITHOUT_INFLUENCE = ("rope.dimension_sections", "nemotron.attention.layer_norm_rms_epsilon")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def expected_logits(folder: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        found = model.train(mode=False)(torch.tensor([IDS]), use_cache=False).logits[0].numpy()
    assert np.ptp(found) > 0.1
    return found


def check_both_readings(path: Path, folder: Path) -> None:
    expected = expected_logits(folder)
    checkpoint = load_checkpoint(str(path))
    source = checkpoint.source(build_on_meta(checkpoint.config))
    found = torch_logits(checkpoint.config, source.read, source.read, IDS)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(GgufReference([path]).logits(IDS), expected, atol=1e-4, rtol=1e-4)


def test_every_architecture_is_tested_and_read_twice() -> None:
    tested = {family.architecture for family in GGUF_FAMILIES.values()} | {"mistral"}
    assert set(FAMILIES) == tested == set(COMPUTATIONS)


@pytest.mark.parametrize("name", GGUF_FAMILIES)
def test_two_readings_are_what_transformers_computes(name: str, tmp_path: Path) -> None:
    folder = save_random(tmp_path / "model", gguf_config(name))
    check_both_readings(write_family(name, folder, tmp_path / "model.gguf"), folder)


@pytest.mark.parametrize("name", FUSED)
def test_query_key_and_value_may_be_one_matrix(name: str, tmp_path: Path) -> None:
    folder = save_random(tmp_path / "model", gguf_config(name))
    check_both_readings(write_family(name, folder, tmp_path / "model.gguf", fuse_qkv=True), folder)


def test_files_that_call_themselves_mistral_are_read(tmp_path: Path) -> None:
    folder = save_random(tmp_path / "model", gguf_config("Mistral"))
    check_both_readings(write_family("Mistral", folder, tmp_path / "model.gguf", architecture="mistral"), folder)


def test_granite_4_states_sizes_of_layers_that_it_has_not(tmp_path: Path) -> None:
    folder = save_random(tmp_path / "model", gguf_config("Granite 3"))
    sizes = {f"{{arch}}.ssm.{key}": 8 for key in ("conv_kernel", "state_size", "group_count", "inner_size")}
    kv_heads = {"{arch}.attention.head_count_kv": [2, 2], "{arch}.expert_used_count": 0}
    path = write_family("Granite 3", folder, tmp_path / "model.gguf", fields={**sizes, **kv_heads})
    check_both_readings(path, folder)


@pytest.mark.parametrize("name", GGUF_FAMILIES)
def test_no_field_is_lost(name: str, tmp_path: Path) -> None:
    """A field with another value gives another configuration, or is refused."""
    folder = save_random(tmp_path / "model", gguf_config(name))
    file = open_gguf(write_family(name, folder, tmp_path / "model.gguf"))
    config = read_config(file).to_dict()
    for key, value in file.fields.items():
        has_influence = value != "none" and not key.endswith(WITHOUT_INFLUENCE)
        if not (key.startswith(f"{file.architecture}.") and has_influence):
            continue
        try:
            found = read_config(replace(file, fields={**file.fields, key: changed(value)})).to_dict()
        except ExportError as error:
            assert str(error)  # noqa: PT017 - refused, which is as good
        else:
            assert found != config, key


def changed(value: Any) -> Any:
    if isinstance(value, (bool, str, list)):
        return "none" if isinstance(value, str) else _opposite(value)
    return value * 2 or 16


def _opposite(value: bool | list[Any]) -> Any:  # noqa: FBT001 - a value of metadata
    return [not item for item in value] if isinstance(value, list) else not value


@pytest.mark.parametrize("name", EVERY)
def test_exported_graphs_have_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    folder = save_random(tmp_path / "model", gguf_config(name))
    save_tokenizer(folder)
    path = write_family(name, folder, tmp_path / "model.gguf")
    options = ExportOptions(target=F32, cache_dtype="f32", tokenizer=str(folder), parity_tokens=48)
    result = export(str(path), tmp_path / "bundle", options=options)
    assert result.models[0].parity.original_kl < 1e-6
    found = graph_logits(result.folder / "target.onnx", IDS, "f32")
    np.testing.assert_allclose(found, expected_logits(folder), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("Gemma 2", {"norm_offset": 0.0}),
        ("Gemma 2", {"window_period": 1}),
        ("GPT-NeoX", {"qkv_by_heads": False}),
        ("SmolLM3", {"constants": {"no_rope_layer_interval": 2}}),
    ],
)
def test_a_wrong_row_is_seen(
    name: str, mistake: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_random(tmp_path / "model", gguf_config(name))
    path = write_family(name, folder, tmp_path / "model.gguf")
    architecture = GGUF_FAMILIES[name].architecture
    monkeypatch.setitem(FAMILIES, architecture, replace(FAMILIES[architecture], **mistake))
    checkpoint = load_checkpoint(str(path))
    source = checkpoint.source(build_on_meta(checkpoint.config))
    found = torch_logits(checkpoint.config, source.read, source.read, IDS)
    assert np.abs(found - checkpoint.second_reading().logits(IDS)).max() > 0.05


@pytest.mark.parametrize(
    ("name", "fields", "error", "message"),
    [
        ("Granite 3", {"rope.scaling.finetuned": False}, UnsupportedModelError, "finetuned = False; supported is True"),
        ("Granite 3", {"logit_scale": None}, CheckpointError, r"metadata lacks granite\.logit_scale"),
        ("OLMo 1", {"attention.layer_norm_epsilon": 1e-3}, UnsupportedModelError, "layer_norm_epsilon = 0.001"),
        ("GPT-BigCode", {"attention.head_count_kv": 4}, UnsupportedModelError, "head_count_kv = 4; supported is 1"),
        ("Cohere 2", {"rope.freq_base_swa": 5e4}, UnsupportedModelError, "freq_base_swa = 50000.0; it must be 10000.0"),
        ("Gemma 3", {"attention.sliding_window_pattern": [True]}, CheckpointError, "of 1 layers; it has 6"),
        ("Gemma 3", {"rope.dimension_count": 8}, UnsupportedModelError, "rotates 8 of 16 dimensions"),
        ("GLM-4-0414", {"rope.dimension_sections": [8, 12, 12]}, UnsupportedModelError, "which is not known"),
        ("Phi-3.5, Phi-4-mini", {"rope.scaling.original_context_length": None}, CheckpointError, "metadata lacks"),
    ],
)
def test_what_a_family_cannot_have_is_refused(
    name: str, fields: dict[str, Any], error: type[ExportError], message: str, tmp_path: Path
) -> None:
    folder = save_random(tmp_path / "model", gguf_config(name))
    named = {f"{{arch}}.{key}": value for key, value in fields.items()}
    with pytest.raises(error, match=message):
        load_checkpoint(str(write_family(name, folder, tmp_path / "model.gguf", fields=named)))
