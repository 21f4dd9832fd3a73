"""Tiny folders in the published layouts of quantised checkpoints, bit by bit, and the weights that they stand for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tiny_models import save_model, tiny_config

from pilotfish.exporter import ExportOptions, export
from pilotfish.exporter.checkpoint_check import check_checkpoint
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.trace import build_on_meta

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
SHAPE = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4}


@dataclass
class Codes:
    """One matrix: w[row, column] = scale[row, group] * (codes[row, column] - zeros[row, group])."""

    codes: Array  # [rows, columns] from 0
    scale: Array  # f16 [rows, groups]
    zeros: Array  # [rows, groups]
    group_of: Array  # [columns]

    def values(self) -> Array:
        groups = self.group_of
        return (self.codes - self.zeros[:, groups]) * self.scale.astype(np.float32)[:, groups]


def random_codes(
    rng: np.random.Generator, rows: int, columns: int, *, bits: int, group: int, symmetric: bool, ordered: bool
) -> Codes:
    width = columns if group == -1 else group
    groups = columns // width
    middle = 1 << (bits - 1)
    codes = rng.integers(1, 1 << bits, (rows, columns))  # without the least: -128 is not in int8
    zeros = np.full((rows, groups), middle) if symmetric else rng.integers(1, middle * 2 - 1, (rows, groups))
    scale = (rng.uniform(0.5, 1.5, (rows, groups)) * 0.25 / middle).astype(np.float16)
    group_of = np.arange(columns) // width
    return Codes(codes, scale, zeros, group_of if ordered else rng.permutation(group_of))


def words(values: Array, bits: int, axis: int) -> torch.Tensor:
    """Unsigned fields, the lowest bits first, of 32-bit words along an axis."""
    per_word = 32 // bits
    moved = np.moveaxis(values, axis, -1)
    fields = moved.reshape(*moved.shape[:-1], -1, per_word).astype(np.uint64)
    total = sum((fields[..., index] << np.uint64(bits * index) for index in range(per_word)), np.uint64(0))
    return torch.from_numpy(np.moveaxis(total.astype(np.uint32).view(np.int32), -1, axis).copy())


def gptq(made: Codes, bits: int, *, version: int = 1) -> dict[str, torch.Tensor]:
    return {
        "qweight": words(made.codes.T, bits, 0),
        "qzeros": words(made.zeros.T - (1 if version == 1 else 0), bits, 1),
        "scales": torch.from_numpy(made.scale.T.copy()),
        "g_idx": torch.from_numpy(made.group_of.astype(np.int32)),
    }


def awq(made: Codes, bits: int) -> dict[str, torch.Tensor]:
    def shuffled(values: Array) -> Array:
        eights = values.reshape(len(values), -1, 8)
        return eights[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(values.shape)

    return {
        "qweight": words(shuffled(made.codes.T), bits, 1),
        "qzeros": words(shuffled(made.zeros.T), bits, 1),
        "scales": torch.from_numpy(made.scale.T.copy()),
    }


def compressed(made: Codes, bits: int) -> dict[str, torch.Tensor]:
    tensors = {
        "weight_packed": words(made.codes, bits, 1),
        "weight_scale": torch.from_numpy(made.scale.copy()),
        "weight_shape": torch.tensor(made.codes.shape),
    }
    if (made.zeros != 1 << (bits - 1)).any():
        tensors["weight_zero_point"] = words(made.zeros, bits, 0)
    if (np.diff(made.group_of) < 0).any():
        tensors["weight_g_idx"] = torch.from_numpy(made.group_of.astype(np.int32))
    return tensors


def save_prequantised(
    folder: Path, settings: dict[str, Any], make: Callable[[str, Array], tuple[dict[str, torch.Tensor], Array]]
) -> dict[str, Array]:
    """Rewrites a tiny Llama: `make` gives the tensors of each linear layer and the values that they stand for."""
    save_model(folder, tiny_config("llama", **SHAPE))
    tensors = load_file(folder / "model.safetensors")
    values = {}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        stored, values[name] = make(name, tensors.pop(name).numpy())
        stem = name.removesuffix(".weight")
        tensors |= {f"{stem}.{part}": tensor for part, tensor in stored.items()}
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = settings
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return values


def compressed_settings(bits: int, group: int, layout: str = "pack-quantized", kind: str = "int") -> dict[str, Any]:
    """A "quantization_config" of compressed-tensors."""
    weights = {"num_bits": bits, "type": kind, "group_size": None if group == -1 else group, "strategy": "group"}
    groups = {"group_0": {"weights": weights, "input_activations": None, "targets": ["Linear"]}}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": groups, "ignore": ["lm_head"]}


def check(folder: Path, expected: dict[str, Array], kept_as: str | None = None, error: float = 0.0) -> None:
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
    """The folder's target in a bundle."""
    options = ExportOptions(parity_tokens=48)
    return export(str(folder), tmp_path / "out", options=options).models[0]
