"""Folders that are quantised already: their integers are in the bundle as they were published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_prequantised import (
    awq,
    check,
    compressed,
    compressed_settings,
    exported,
    gptq,
    random_codes,
    save_prequantised,
)

from pilotfish.exporter import ExportOptions, export
from pilotfish.exporter.checkpoint_check import check_checkpoint
from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError, UnusedTensorError
from pilotfish.exporter.load import load_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

GPTQ = {"quant_method": "gptq", "desc_act": False, "sym": True, "lm_head": False}
AWQ = {"quant_method": "awq", "bits": 4, "zero_point": True, "version": "gemm"}


def published(folder: Path, settings: dict[str, Any], pack: Any, **shape: Any) -> dict[str, np.ndarray]:
    """A folder with random integers in every linear layer."""
    rng = np.random.default_rng(2)

    def make(_name: str, weight: np.ndarray) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        made = random_codes(rng, *weight.shape, **{"symmetric": True, "ordered": True, **shape})
        return pack(made, shape["bits"]), made.values()

    return save_prequantised(folder, settings, make)


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
    "auto-round": (
        {"quant_method": "auto-round", "bits": 4, "group_size": 64, "packing_format": "auto_round:auto_gptq"},
        gptq,
        {"bits": 4, "group": 64},
    ),
    "auto-round as awq": (
        {"quant_method": "intel/auto-round", "bits": 4, "group_size": 64, "packing_format": "auto_round:auto_awq"},
        awq,
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


def test_llm_int8(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)

    def make(_name: str, weight: np.ndarray) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        codes, largest = rng.integers(-127, 128, weight.shape), rng.uniform(0.1, 0.3, len(weight)).astype(np.float32)
        tensors = {"weight": torch.from_numpy(codes.astype(np.int8)), "SCB": torch.from_numpy(largest)}
        return tensors | {"weight_format": torch.tensor(0, dtype=torch.uint8)}, codes * largest[:, None] / 127

    folder = tmp_path / "model"
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    check(folder, save_prequantised(folder, settings, make), "int8", 5e-4)


def test_gptq_with_other_bits_for_some_matrices(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)

    def make(name: str, weight: np.ndarray) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        bits = 8 if "down_proj" in name else 4
        made = random_codes(rng, *weight.shape, bits=bits, group=64, symmetric=True, ordered=True)
        return gptq(made, bits), made.values()

    folder = tmp_path / "model"
    settings = {**GPTQ, "bits": 4, "group_size": 64, "dynamic": {r"+:.*down_proj.*": {"bits": 8}}}
    check(folder, save_prequantised(folder, settings, make), "int8")


def test_compressed_groups_of_their_own_layouts(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)

    def make(name: str, weight: np.ndarray) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        bits = 8 if "down_proj" in name else 4
        made = random_codes(rng, *weight.shape, bits=bits, group=64, symmetric=True, ordered=True)
        return compressed(made, bits), made.values()

    folder = tmp_path / "model"
    settings = compressed_settings(4, 64, "mixed-precision")
    groups = [{**settings["config_groups"]["group_0"], "format": "pack-quantized"}, {"weights": None, "targets": []}]
    settings["config_groups"] = {f"group_{index}": group for index, group in enumerate(groups)}
    check(folder, save_prequantised(folder, settings, make), "int8")


@pytest.mark.parametrize("symmetric", [True, False])
def test_zero_points_as_older_versions_wrote_them(symmetric: bool, tmp_path: Path) -> None:  # noqa: FBT001 - of the test
    def pack(made: Any, bits: int) -> dict[str, torch.Tensor]:
        zeros = torch.from_numpy((made.zeros - 8).astype(np.int8))
        return compressed(made, bits) | {"weight_zero_point": zeros}

    folder = tmp_path / "model"
    check(folder, published(folder, compressed_settings(4, 64), pack, bits=4, group=64, symmetric=symmetric))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quant_method": "aqlm"}, "quant_method 'aqlm'; known are gptq, awq"),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"}, "data_type 'mx_fp'; known are int"),
        (
            {**GPTQ, "quant_method": "auto-round", "bits": 4, "packing_format": "x"},
            "packing_format 'x'; known are auto",
        ),
        ({"quant_method": "intel/auto-round", "bits": 4, "backend": "auto_round:exllamav2"}, "backend 'auto_round:exl"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "quant_algo 'W4A8_AWQ'; known are FP8, NVFP4"),
        ({**GPTQ, "bits": 3, "group_size": 64}, "bits 3; known are 4, 8"),
        ({**GPTQ, "bits": 4, "checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
        ({**AWQ, "version": "gemv"}, "version 'gemv'; known are gemm"),
        ({"quant_method": "awq", "bits": 4, "checkpoint_format": "gemv"}, "checkpoint_format 'gemv'; known are gemm"),
        (compressed_settings(4, 64, "marlin-24"), "format 'marlin-24'"),
        (compressed_settings(4, 64, "int-quantized"), "num_bits 4; known are 8"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, r"config_groups \[\]"),
        (
            {**compressed_settings(4, 64), "transform_config": {"config_groups": {"R1": {"type": "hadamard"}}}},
            "transform_config 'R1'; known are models without rotations",
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb_4bit_quant_type 'fp4'; known are nf4"),
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
        ("scales", lambda scales: scales * 0, "all its scales are 0"),
        ("g_idx", lambda index: index + 9, "do not fit together"),
        ("g_idx", lambda index: index - 1, "do not fit together"),
        ("g_idx", lambda index: index[1:], "do not fit together"),
        ("qweight", lambda weight: weight.float(), "qweight is float32 .*, which must be integers with 2 axes"),
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
