"""What is not fused stays a graph of row-wise nodes, which is checked, counted and named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import tiny_heads
import torch
import transformers
from architectures import MROPE, SHAPE, config_of
from safetensors.torch import load_file, save_file
from tiny_models import save_model, save_random, save_tokenizer, tiny_config
from transformers.activations import ACT2FN

from pilotfish import Engine
from pilotfish.exporter import ExportOptions, ModelFormats, check_bundle, export
from pilotfish.exporter.errors import OptionError, ParityError, UnsupportedModelError, UnusedTensorError
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.row_check import check_rows

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

F32 = ExportOptions(target=ModelFormats("f32", "f32", "f32"), cache_dtype="f32", parity=False)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint and its bundle."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("lowering")
    checkpoint = save_model(folder / "model", config_of("Gemma 2"))
    return checkpoint, export(str(checkpoint), folder / "bundle", options=F32).folder


def check(bundle: Path) -> None:
    path = bundle / "target.onnx"
    check_rows(ir.load(path).graph, path, "f32", num_ids=258, num_positions=256)


def test_the_check_of_rows_finds_a_node_that_mixes_them(gemma: tuple[Path, Path], tmp_path: Path) -> None:
    """The mean of all rows of the pass is taken off the logits."""
    _, bundle = gemma
    check(bundle)
    for name in ("target.bin", "target.onnx"):
        (tmp_path / name).write_bytes((bundle / name).read_bytes())
    model = onnx.load(tmp_path / "target.onnx", load_external_data=False)
    last = model.graph.node[-1]
    last.output[0] = "before"
    axes = onnx.numpy_helper.from_array(np.array([0]), "axes_of_rows")
    model.graph.initializer.append(axes)
    model.graph.node.append(onnx.helper.make_node("ReduceMean", ["before", "axes_of_rows"], ["mean"], name="mean"))
    model.graph.node.append(onnx.helper.make_node("Sub", ["before", "mean"], ["logits"], name="difference"))
    onnx.save(model, tmp_path / "target.onnx")
    with pytest.raises(ParityError, match=r"a row has other bits in a pass of 1 rows than in one of 256; .*ReduceMean"):
        check(tmp_path)


def test_a_bundle_says_what_is_not_fused(gemma: tuple[Path, Path], cli: CommandLine) -> None:
    _, bundle = gemma
    entry = check_bundle(bundle).models["target"].lowered
    assert entry is not None
    assert (entry.nodes_per_layer, entry.operators, entry.unfused) == (8, (), ())
    finished = cli("info", bundle)
    assert "nodes a layer 8" in " ".join(finished.out.split()).replace("│", "").replace("  ", " ")
    assert "ONNX Runtime runs" not in finished.out


class Power(torch.nn.Module):
    """An activation with a power that no step has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., 96] -> [..., 96]."""
        return torch.pow(x * x + 0.1, 0.7) * x


def test_what_no_program_expresses_stays_a_node_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """The nodes before and after it are programs, and all is still what torch computes."""
    monkeypatch.setitem(ACT2FN, "power", Power)
    checkpoint = save_model(tmp_path / "model", tiny_config("llama", hidden_act="power"))
    options = ExportOptions(target=F32.target, cache_dtype="f32", parity_tokens=24)
    result = export(str(checkpoint), tmp_path / "out", options=options)
    parity, entry = result.models[0].parity, result.manifest.models["target"].lowered
    assert parity is not None
    assert parity.max_difference < 1e-4
    assert entry is not None
    assert entry.operators == ("Pow",)
    assert entry.nodes_per_layer == 8
    assert len(set(entry.unfused)) == len(entry.unfused) > 0
    said = cli("info", tmp_path / "out").out
    assert "ONNX Runtime runs Pow" in said
    assert "not fused:" in said


def test_positions_are_looked_up_by_a_node_of_ours(tmp_path: Path, cli: CommandLine) -> None:
    checkpoint = save_model(tmp_path / "model", config_of("GPT-2"))
    entry = export(str(checkpoint), tmp_path / "bundle", options=F32).manifest.models["target"].lowered
    assert entry is not None
    assert (entry.operators, entry.unfused) == ((), ())
    assert "ONNX Runtime runs" not in cli("info", tmp_path / "bundle").out


def test_five_nodes_need_no_words(tmp_path: Path, cli: CommandLine) -> None:
    checkpoint = save_model(tmp_path / "model", tiny_config("llama"))
    bundle = export(str(checkpoint), tmp_path / "bundle", options=F32).folder
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert "lowered" not in manifest["models"]["target"]
    assert "not fused" not in cli("info", bundle).out


def test_an_activation_without_a_rule_is_refused(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", tiny_config("llama", hidden_act="mish"))
    with pytest.raises(UnsupportedModelError, match=r"layers\.0\.mlp\.act_fn: it computes Mish, which is not"):
        export(str(checkpoint), tmp_path / "out", options=F32)


class Mirror(torch.nn.Module):
    """An activation that mixes columns in a way that no row-wise node has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., 96] -> [..., 96]."""
        return x * torch.flip(x, [-1])


def test_reversed_columns_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACT2FN, "mirror", Mirror)
    checkpoint = save_model(tmp_path / "model", tiny_config("llama", hidden_act="mirror"))
    with pytest.raises(
        UnsupportedModelError, match=r"layers\.0\.mlp\.act_fn: it puts elements of a row in reverse order"
    ):
        export(str(checkpoint), tmp_path / "out", options=F32)


class Gate(torch.nn.Module):
    """An activation that multiplies with a condition, as rows and by parts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., 96] -> [..., 96]."""
        low, high = (x > 0.1).split(48, dim=-1)
        return x * torch.cat([high, low], dim=-1).to(x.dtype) + 0.5 * x


def test_a_condition_becomes_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACT2FN, "gate", Gate)
    checkpoint = save_model(tmp_path / "model", tiny_config("llama", hidden_act="gate", intermediate_size=96))
    options = ExportOptions(target=F32.target, cache_dtype="f32", parity_tokens=24)
    result = export(str(checkpoint), tmp_path / "out", options=options)
    parity, entry = result.models[0].parity, result.manifest.models["target"].lowered
    assert parity is not None
    assert parity.max_difference < 1e-4
    assert entry is not None
    assert (entry.operators, entry.nodes_per_layer) == ((), 6)
    with Engine(result.folder, threads=1, calibration="off") as engine:
        assert engine.generate([1, 2, 3], max_new_tokens=2, ignore_eos=True).token_ids


def test_longrope_ends_where_its_frequencies_change(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", config_of("Phi-3.5, Phi-4-mini"))
    with pytest.warns(UserWarning, match="other rotary frequencies beyond 256"):
        result = export(str(checkpoint), tmp_path / "out", options=F32)
    assert result.manifest.models["target"].max_positions == 256
    longer = ExportOptions(parity=False, max_positions=300)
    with pytest.raises(OptionError, match=r"max_positions is 300; .* at most 256; beyond it, its rotary frequencies"):
        export(str(checkpoint), tmp_path / "longer", options=longer)


def test_a_head_needs_a_plain_end_of_its_target(gemma: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint, _ = gemma
    head = tiny_heads.save_head(tmp_path / "head", *tiny_heads.medusa())
    with pytest.raises(UnsupportedModelError, match=r"\(gemma2\) cannot have a head"):
        export(str(checkpoint), tmp_path / "out", head=str(head), options=F32)
    assert not (tmp_path / "out").exists()


def test_a_text_part_may_leave_out_what_its_class_has(tmp_path: Path) -> None:
    """As the configurations that Gemma 3 is published with do."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 64}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = load_checkpoint(str(tmp_path))
    assert checkpoint.is_text_part
    assert (checkpoint.config.vocab_size, checkpoint.config.num_attention_heads) == (262_208, 8)


@pytest.mark.parametrize("kind", ["Qwen2VLConfig", "Qwen2_5_VLConfig"])
def test_a_flat_configuration_may_tie_the_output_layer(kind: str, tmp_path: Path) -> None:
    """As small models with images are published: without text_config, and without a tensor of the output layer."""
    text = {**SHAPE, "rope_parameters": MROPE}
    config = getattr(transformers, kind)(text_config=text, tie_word_embeddings=True)
    checkpoint = save_random(tmp_path / "model", config, is_whole=True)
    save_tokenizer(checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    save_file(
        {name: value for name, value in tensors.items() if "lm_head" not in name}, checkpoint / "model.safetensors"
    )
    flat = {"model_type": config.model_type, "tie_word_embeddings": True, **text}
    (checkpoint / "config.json").write_text(json.dumps(flat))
    loaded = load_checkpoint(str(checkpoint))
    assert (loaded.config.model_type, loaded.config.hidden_size) == ("qwen2", SHAPE["hidden_size"])
    options = ExportOptions(target=F32.target, cache_dtype="f32", parity_tokens=24)
    parity = export(str(checkpoint), tmp_path / "out", options=options).models[0].parity
    assert parity is not None
    assert parity.max_difference < 1e-4


def test_a_text_that_is_not_tied_stays_so(tmp_path: Path) -> None:
    """What the whole of Gemma 3 and Mistral 3 says by default is not about their text."""
    text = {**SHAPE, "model_type": "mistral", "tie_word_embeddings": False}
    transformers.Mistral3Config(text_config=text).save_pretrained(tmp_path)
    assert load_checkpoint(str(tmp_path)).config.tie_word_embeddings is False


def test_only_tensors_of_other_parts_are_left_out(tmp_path: Path) -> None:
    """A vision tower is not exported; an unknown tensor of the text is no vision tower."""
    checkpoint = save_random(tmp_path / "model", config_of("Gemma 3, text"), is_whole=True)
    save_tokenizer(checkpoint)
    result = export(str(checkpoint), tmp_path / "out", options=F32)
    assert result.manifest.models["target"].architecture == "gemma3_text"
    tensors: dict[str, Any] = load_file(checkpoint / "model.safetensors")
    assert any(name.startswith("vision_tower") for name in tensors)
    save_file(
        {**tensors, "model.language_model.layers.0.extra.weight": torch.ones(4)}, checkpoint / "model.safetensors"
    )
    with pytest.raises(UnusedTensorError, match=r"layers\.0\.extra\.weight"):
        export(str(checkpoint), tmp_path / "again", options=F32)
