"""Folders that are quantised already: their integers are in the bundle as they were published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_prequantised import awq, compressed, gptq, random_codes, save_prequantised

from pilotfish.exporter import ExportOptions, export
from pilotfish.exporter.checkpoint_check import check_checkpoint
from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError, UnusedTensorError
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.trace import build_on_meta

if TYPE_CHECKING:
    from pathlib import Path

GPTQ = {"quant_method": "gptq", "desc_act": False, "sym": True, "lm_head": False}
AWQ = {"quant_method": "awq", "bits": 4, "zero_point": True, "version": "gemm"}
NF4_LEVELS = np.concatenate([-np.geomspace(1, 0.08, 8), np.linspace(0, 1, 8)]).astype(np.float32)


def compressed_settings(bits: int, group: int, layout: str = "pack-quantized", kind: str = "int") -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "group_size": None if group == -1 else group, "strategy": "group"}
    groups = {"group_0": {"weights": weights, "input_activations": None, "targets": ["Linear"]}}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": groups, "ignore": ["lm_head"]}


def published(folder: Path, settings: dict[str, Any], pack: Any, **shape: Any) -> dict[str, np.ndarray]:
    """A folder with random integers in every linear layer."""
    rng = np.random.default_rng(2)

    def make(_name: str, weight: np.ndarray) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        made = random_codes(rng, *weight.shape, **{"symmetric": True, "ordered": True, **shape})
        return pack(made, shape["bits"]), made.values()

    return save_prequantised(folder, settings, make)


def check(folder: Path, expected: dict[str, np.ndarray], kept_as: str | None = None, error: float = 0.0) -> None:
    """Whether the exporter reads the weights that the integers stand for, and which format has these integers."""
    checkpoint = load_checkpoint(str(folder))
    assert not hasattr(checkpoint.config, "quantization_config")
    assert check_checkpoint(checkpoint, uses_mtp=False, ignore_unused=False) == []
    source = checkpoint.source(build_on_meta(checkpoint.config))
    for name, values in expected.items():
        np.testing.assert_allclose(source.read(name), values, rtol=1e-6)
        kept = None if kept_as is None else source.read_blocks(name, kept_as)
        assert (kept is None) == (kept_as is None)
        if kept is not None:
            np.testing.assert_allclose(kept.dequantise(), values, rtol=1e-6, atol=error * np.abs(values).max())


def exported(folder: Path, tmp_path: Path) -> Any:
    options = ExportOptions(parity_tokens=48)
    return export(str(folder), tmp_path / "out", options=options).models[0]


CASES = {
    "gptq 4 sym 32": ({**GPTQ, "bits": 4, "group_size": 32}, gptq, {"bits": 4, "group": 32}),
    "gptq 4 sym 128": ({**GPTQ, "bits": 4, "group_size": 128}, gptq, {"bits": 4, "group": 128}),
    "gptq 4 sym all": ({**GPTQ, "bits": 4, "group_size": -1}, gptq, {"bits": 4, "group": -1}),
    "gptq 4 asym 64": ({**GPTQ, "bits": 4, "group_size": 64}, gptq, {"bits": 4, "group": 64, "symmetric": False}),
    "gptq 8 sym 64": ({**GPTQ, "bits": 8, "group_size": 64}, gptq, {"bits": 8, "group": 64}),
    "gptq v2": (
        {**GPTQ, "bits": 4, "group_size": 64, "checkpoint_format": "gptq_v2"},
        lambda made, bits: gptq(made, bits, version=2),
        {"bits": 4, "group": 64, "symmetric": False},
    ),
    "awq 64": ({**AWQ, "group_size": 64}, awq, {"bits": 4, "group": 64, "symmetric": False}),
    "awq 128": ({**AWQ, "group_size": 128}, awq, {"bits": 4, "group": 128, "symmetric": False}),
    "w4a16": (compressed_settings(4, 64), compressed, {"bits": 4, "group": 64}),
    "w4a16 asym": (compressed_settings(4, 32), compressed, {"bits": 4, "group": 32, "symmetric": False}),
    "w4a16 channel": (compressed_settings(4, -1), compressed, {"bits": 4, "group": -1}),
    "w8a16": (compressed_settings(8, 64), compressed, {"bits": 8, "group": 64}),
}
KEPT = {"4 True": "int4", "4 False": "int4_asym", "8 True": "int8"}


@pytest.mark.parametrize("case", CASES)
def test_published_integers_are_kept(case: str, tmp_path: Path) -> None:
    settings, pack, shape = CASES[case]
    folder, symmetric = tmp_path / "model", shape.get("symmetric", True)
    rounding = 0.0 if symmetric else 5e-4  # an offset is scale times zero, in f16
    check(folder, published(folder, settings, pack, **shape), KEPT[f"{shape['bits']} {symmetric}"], rounding)


@pytest.mark.parametrize(
    ("case", "formats", "reason"),
    [
        ("gptq 4 sym 128", "int4", "bit for bit the file's 100% W4"),
        ("awq 64", "int4_asym", "nearest to the file's 100% W4 WITH ZEROS"),
        ("w8a16", "int8", "bit for bit the file's 100% W8"),
    ],
)
def test_a_bundle_has_the_published_integers(case: str, formats: str, reason: str, tmp_path: Path) -> None:
    settings, pack, shape = CASES[case]
    published(tmp_path / "model", settings, pack, **shape)
    model = exported(tmp_path / "model", tmp_path)
    assert (model.formats[0].format, model.formats[0].reason) == (formats, reason)
    loss = next(loss for loss in model.losses if loss.stored_type.startswith("W"))
    assert loss.relative_error <= (5e-4 if formats == "int4_asym" else 0.0)


@pytest.mark.parametrize("pack", [gptq, compressed])
def test_columns_in_any_order_become_int8(pack: Any, tmp_path: Path) -> None:
    settings = {**GPTQ, "bits": 4, "group_size": 32, "desc_act": True} if pack is gptq else compressed_settings(4, 32)
    folder = tmp_path / "model"
    check(folder, published(folder, settings, pack, bits=4, group=32, ordered=False))
    if pack is gptq:
        model = exported(folder, tmp_path)
        assert model.formats[0].format == "int8"
        loss = next(loss for loss in model.losses if loss.stored_type == "W4 IN ANY ORDER")
        assert 0 < loss.relative_error < 0.01


def test_int8_weights_of_w8a8(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)

    def make(_name: str, weight: np.ndarray) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        codes = rng.integers(-127, 128, weight.shape)
        scale = rng.uniform(0.001, 0.002, (len(weight), 1)).astype(np.float16)
        tensors = {"weight": torch.from_numpy(codes.astype(np.int8)), "weight_scale": torch.from_numpy(scale)}
        return tensors, codes * scale.astype(np.float32)

    folder = tmp_path / "model"
    check(folder, save_prequantised(folder, compressed_settings(8, -1, "int-quantized"), make), "int8")


@pytest.mark.parametrize("layout", ["block", "row", "one"])
def test_fp8_with_scales(layout: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)

    def make(_name: str, weight: np.ndarray) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        rows, columns = weight.shape
        shape = {"block": (-(-rows // 64), -(-columns // 64)), "row": (rows, 1), "one": ()}[layout]
        scale = rng.uniform(0.001, 0.002, shape).astype(np.float32)
        values = torch.from_numpy(rng.standard_normal(weight.shape) * 50).to(torch.float8_e4m3fn)
        wide = np.broadcast_to(scale, weight.shape) if layout != "block" else scale.repeat(64, 0).repeat(64, 1)
        name = "weight_scale_inv" if layout == "block" else "weight_scale"
        tensors = {"weight": values, name: torch.tensor(scale)}
        return tensors, values.float().numpy() * wide[:rows, :columns]

    folder = tmp_path / "model"
    settings = {"quant_method": "fp8", "weight_block_size": [64, 64]}
    if layout != "block":
        settings = compressed_settings(8, -1, "float-quantized", "float")
    check(folder, save_prequantised(folder, settings, make))
    if layout == "block":
        loss = next(loss for loss in exported(folder, tmp_path).losses if loss.stored_type == "FP8")
        assert loss.format == "int8"
        assert 0 < loss.relative_error < 0.02


@pytest.mark.parametrize("nested", [False, True])
def test_nf4(nested: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    rng = np.random.default_rng(7)

    def make(_name: str, weight: np.ndarray) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        codes = rng.integers(0, 16, weight.size, dtype=np.uint8)
        largest = rng.uniform(0.1, 0.3, weight.size // 64).astype(np.float32)
        state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(weight.shape)}
        tensors = {
            "weight": torch.from_numpy((codes[0::2] << 4) | codes[1::2])[:, None],
            "weight.quant_map": torch.from_numpy(NF4_LEVELS.copy()),
        }
        if nested:
            levels = np.linspace(-1, 1, 256, dtype=np.float32)
            inner = rng.integers(0, 256, largest.size, dtype=np.uint8)
            outer = rng.uniform(0.05, 0.1, -(-largest.size // 256)).astype(np.float32)
            largest = levels[inner] * outer.repeat(256)[: largest.size] + np.float32(0.2)
            tensors |= {
                "weight.absmax": torch.from_numpy(inner),
                "weight.nested_absmax": torch.from_numpy(outer),
                "weight.nested_quant_map": torch.from_numpy(levels),
            }
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.2}
        else:
            tensors["weight.absmax"] = torch.from_numpy(largest)
        packed_state = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
        tensors["weight.quant_state.bitsandbytes__nf4"] = torch.from_numpy(packed_state)
        return tensors, (NF4_LEVELS[codes] * largest.repeat(64)).reshape(weight.shape)

    folder = tmp_path / "model"
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    check(folder, save_prequantised(folder, settings, make))
    if nested:
        loss = next(loss for loss in exported(folder, tmp_path).losses if loss.stored_type == "NF4")
        assert loss.format == "int8"
        assert 0 < loss.relative_error < 0.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quant_method": "aqlm"}, "quant_method 'aqlm'; known are gptq, awq"),
        ({**GPTQ, "bits": 3, "group_size": 64}, "bits 3; known are 4 and 8"),
        ({**GPTQ, "bits": 4, "checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
        ({**AWQ, "version": "gemv"}, "version 'gemv'; known are gemm"),
        (compressed_settings(4, 64, "marlin-24"), "format 'marlin-24'"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups '0 groups'"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb_4bit_quant_type 'int8'; known are nf4"),
    ],
)
def test_other_layouts_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    published(tmp_path / "model", settings, gptq, bits=4, group=64)
    with pytest.raises(UnsupportedModelError, match=message):
        load_checkpoint(str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("scales", lambda scales: scales.fill_(float("nan")), "down_proj.weight: a scale is not a finite number"),
        ("scales", lambda scales: scales[:, 1:].clone(), "down_proj.weight: codes .* do not fit together"),
        ("g_idx", lambda index: index + 9, "do not fit together"),
        ("qzeros", None, r"has no tensor model\.layers\.1\.mlp\.down_proj\.qzeros"),
    ],
)
def test_damaged_tensors_are_named(name: str, spoil: Any, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    published(folder, {**GPTQ, "bits": 4, "group_size": 64}, gptq, bits=4, group=64)
    tensors = load_file(folder / "model.safetensors")
    place = f"model.layers.1.mlp.down_proj.{name}"
    damaged = tensors.pop(place)
    if spoil is not None:
        tensors[place] = spoil(damaged).contiguous()
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        export(str(folder), tmp_path / "out", options=ExportOptions(parity=False))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("bias", torch.zeros(64), None),  # as GPTQ's tools write it for a layer without bias
        ("bias", torch.ones(64), r"does not use \(model\.layers\.0\.mlp\.up_proj\.bias\)"),
        ("lora_A.weight", torch.ones(4, 128), r"does not use \(model\.layers\.0\.mlp\.up_proj\.lora_A\.weight\)"),
    ],
)
def test_tensors_beside_the_parts_of_a_matrix(
    name: str, tensor: torch.Tensor, message: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    published(folder, {**GPTQ, "bits": 4, "group_size": 64}, gptq, bits=4, group=64)
    tensors = load_file(folder / "model.safetensors")
    tensors[f"model.layers.0.mlp.up_proj.{name}"] = tensor
    save_file(tensors, folder / "model.safetensors")
    checkpoint = load_checkpoint(str(folder))
    if message is None:
        assert check_checkpoint(checkpoint, uses_mtp=False, ignore_unused=False) == []
    else:
        with pytest.raises(UnusedTensorError, match=message):
            check_checkpoint(checkpoint, uses_mtp=False, ignore_unused=False)
