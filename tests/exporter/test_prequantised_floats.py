"""Folders whose matrices are small floats or look-ups: FP8, NVFP4, MXFP4 and NF4, read as what they stand for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_prequantised import check, compressed_settings, exported, save_prequantised

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError
from pilotfish.exporter.load import load_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Array = np.ndarray[Any, np.dtype[Any]]
    Made = tuple[dict[str, torch.Tensor], Array]

NF4_LEVELS = np.concatenate([-np.geomspace(1, 0.08, 8), np.linspace(0, 1, 8)]).astype(np.float32)
FP4_LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def fp8(weight: Array, scale_shape: tuple[int, ...], block: int, name: str) -> Made:
    """Random values of 8 bits, with a scale for all, for each row or for each block."""
    rng = np.random.default_rng(weight.shape[1])
    rows, columns = weight.shape
    scale = rng.uniform(0.001, 0.002, scale_shape).astype(np.float32)
    values = torch.from_numpy(rng.standard_normal(weight.shape) * 50).to(torch.float8_e4m3fn)
    wide = scale.repeat(block, 0).repeat(block, 1)[:rows, :columns] if block else np.broadcast_to(scale, weight.shape)
    return {"weight": values, name: torch.tensor(scale)}, values.float().numpy() * wide


@pytest.mark.parametrize("layout", ["block 64", "block 48", "row", "one"])
def test_fp8_with_scales(layout: str, tmp_path: Path) -> None:
    block = int(layout.partition(" ")[2] or 0)
    name = "weight_scale_inv" if block else "weight_scale"

    def make(_name: str, weight: Array) -> Made:
        rows, columns = weight.shape
        shape = {"row": (rows, 1), "one": ()}.get(layout) if not block else (-(-rows // block), -(-columns // block))
        return fp8(weight, shape or (), block, name)

    folder = tmp_path / "model"
    settings = {"quant_method": "fp8", "weight_block_size": [block, block]}
    if not block:
        settings = compressed_settings(8, -1, "float-quantized", "float")
    check(folder, save_prequantised(folder, settings, make))
    if layout == "block 64":
        loss = next(loss for loss in exported(folder, tmp_path).losses if loss.stored_type == "FP8")
        assert loss.format == "int8"
        assert 0 < loss.relative_error < 0.02


def fp4(weight: Array, group: int, kind: str) -> Made:
    """Random values of 4 bits in the layout of compressed-tensors or ModelOpt, or with scales of powers of two."""
    rng = np.random.default_rng(weight.shape[1])
    codes = rng.integers(0, 16, weight.shape, dtype=np.uint8)
    values = FP4_LEVELS[codes & 7] * np.where(codes & 8, np.float32(-1), np.float32(1))
    pairs = torch.from_numpy(codes[:, 0::2] | (codes[:, 1::2] << 4))
    shape = (weight.shape[0], weight.shape[1] // group)
    if kind == "mxfp4":
        exponents = rng.integers(119, 124, shape, dtype=np.uint8)
        scales = np.exp2(exponents.astype(np.float32) - 127)
        tensors = {"weight_packed": pairs, "weight_scale": torch.from_numpy(exponents)}
    else:
        stored = torch.from_numpy(rng.uniform(20, 400, shape)).to(torch.float8_e4m3fn)
        scales = stored.float().numpy() / 16384
        tensors = {
            "compressed": {"weight_packed": pairs, "weight_global_scale": torch.tensor([16384.0])},
            "modelopt": {"weight": pairs, "weight_scale_2": torch.tensor(1 / 16384), "input_scale": torch.tensor(0.1)},
        }[kind] | {"weight_scale": stored}
    return tensors, values * scales.repeat(group, 1)


@pytest.mark.parametrize("kind", ["compressed", "modelopt", "mxfp4"])
def test_four_bit_floats(kind: str, tmp_path: Path) -> None:
    layout = "mxfp4-pack-quantized" if kind == "mxfp4" else "nvfp4-pack-quantized"
    settings = compressed_settings(4, 16, layout, "float")
    if kind == "modelopt":
        settings = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    folder = tmp_path / "model"
    group = 32 if kind == "mxfp4" else 16
    check(folder, save_prequantised(folder, settings, lambda _, weight: fp4(weight, group, kind)))
    if kind == "compressed":
        loss = next(loss for loss in exported(folder, tmp_path).losses if loss.stored_type == "FP4")
        assert loss.format == "int8"
        assert 0 < loss.relative_error < 0.02


@pytest.mark.parametrize("beside", [False, True])
def test_modelopt_mixes_layouts(beside: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    """Attention in 8 bits and the rest in 4, with the settings in config.json or, as of old, in a file beside it."""

    def make(name: str, weight: Array) -> Made:
        return fp8(weight, (), 0, "weight_scale") if "self_attn" in name else fp4(weight, 16, "modelopt")

    folder = tmp_path / "model"
    algorithm = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8"}
    values = save_prequantised(folder, {} if beside else {"quant_method": "modelopt", **algorithm}, make)
    if beside:
        settings = {"producer": {"name": "modelopt"}, "quantization": algorithm}
        (folder / "hf_quant_config.json").write_text(json.dumps(settings), encoding="utf-8")
    tensors = load_file(folder / "model.safetensors")
    for part in ("k", "v"):  # of caches in 8 bits
        tensors[f"model.layers.0.self_attn.{part}_proj.{part}_scale"] = torch.tensor(0.5)
    save_file(tensors, folder / "model.safetensors")
    check(folder, values)


def nf4(weight: Array, *, nested: bool = False, **changes: Any) -> Made:
    """Look-ups of 4 bits, with one factor a block of 64, which may be looked up itself."""
    rng = np.random.default_rng(weight.shape[1])
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
    packed_state = np.frombuffer(json.dumps(state | changes).encode(), np.uint8).copy()
    tensors["weight.quant_state.bitsandbytes__nf4"] = torch.from_numpy(packed_state)
    return tensors, (NF4_LEVELS[codes] * largest.repeat(64)).reshape(weight.shape)


@pytest.mark.parametrize("nested", [False, True])
def test_nf4(nested: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    folder = tmp_path / "model"
    check(folder, save_prequantised(folder, NF4, lambda _, weight: nf4(weight, nested=nested)))
    if nested:
        loss = next(loss for loss in exported(folder, tmp_path).losses if loss.stored_type == "NF4")
        assert loss.format == "int8"
        assert 0 < loss.relative_error < 0.01


def nf4_state(**changes: Any) -> Callable[[str, Array], Made]:
    return lambda _, weight: nf4(weight, **changes)


@pytest.mark.parametrize(
    ("settings", "make", "message"),
    [
        (NF4, nf4_state(blocksize=128), "scales are not one for each 128 of"),
        (NF4, nf4_state(blocksize=1 << 40), "scales are not one for each 1099511627776 of"),
        (NF4, nf4_state(blocksize=0), "scales are not one for each 0 of"),
        (NF4, nf4_state(shape=None), "not in the layout that its config.json says: 'NoneType' object is not iterable"),
        (
            {"quant_method": "fp8", "weight_block_size": [64, 64]},
            lambda _, weight: fp8(weight, (weight.shape[0] // 32, weight.shape[1] // 32), 32, "weight_scale_inv"),
            "scales are not one for each block of 64 x 64 weights",
        ),
        (
            {"quant_method": "fp8"},
            lambda _, weight: (fp8(weight, (), 0, "weight_scale")[0] | {"weight_scale": torch.zeros(())}, weight),
            "all its scales are 0",
        ),
    ],
)
def test_parts_that_do_not_fit_are_named(settings: Any, make: Any, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    values = save_prequantised(folder, settings, make)
    with pytest.raises(CheckpointError, match=rf"_proj\.weight.*{message}"):
        check(folder, values)


def test_bytes_of_nf4_that_are_stored_as_floats_are_refused(tmp_path: Path) -> None:
    save_prequantised(tmp_path / "model", {**NF4, "bnb_4bit_quant_storage": "bfloat16"}, nf4_state())
    with pytest.raises(UnsupportedModelError, match="bnb_4bit_quant_storage 'bfloat16'; known are uint8"):
        load_checkpoint(str(tmp_path / "model"))
