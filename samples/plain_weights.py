"""Writes a checkpoint's weights, dequantised where they are in blocks, as a folder with f16 safetensors.

python samples/plain_weights.py smollm2 build/smollm2-f16
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.trace import build_on_meta, first_names

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from pilotfish.exporter.load import Checkpoint


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help="as `pilotfish export` takes it")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--off-grid", action="store_true", help="scale columns, so that no block format has the values")
    given = parser.parse_args()
    checkpoint = load_checkpoint(given.checkpoint)
    given.folder.mkdir(parents=True, exist_ok=True)
    _write_weights(checkpoint, given.folder, is_off_grid=given.off_grid)
    _write_configuration(checkpoint, given.folder)
    print(f"wrote {given.folder}")


def _write_weights(checkpoint: Checkpoint, folder: Path, *, is_off_grid: bool) -> None:
    model = build_on_meta(checkpoint.config)
    source = checkpoint.source(model)
    names = sorted(set(first_names(model).values()) & set(source.names()))
    tensors = {name: torch.from_numpy(source.read(name).copy()) for name in names}
    if is_off_grid:
        if checkpoint.config.model_type != "llama":
            raise SystemExit(f"--off-grid knows the layers of llama, not of {checkpoint.config.model_type}")
        for index in range(checkpoint.config.num_hidden_layers):
            _scale_columns(tensors, f"model.layers.{index}.", checkpoint.config)
    tensors = {name: tensor.half().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _scale_columns(tensors: dict[str, torch.Tensor], layer: str, config: PretrainedConfig) -> None:
    """The same function of other matrices.

    Weights that were dequantised lie on a grid, which a format with the same blocks has without a loss, so that they
    tell nothing about it. A norm's weights are moved into the columns that read it; the columns of the other two
    matrices are scaled by random numbers, and the rows that feed them by the inverse.
    """
    for norm, readers in (
        ("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
        ("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj")),
    ):
        scale = tensors[f"{layer}{norm}.weight"]
        for reader in readers:
            tensors[f"{layer}{reader}.weight"] *= scale
        tensors[f"{layer}{norm}.weight"] = torch.ones_like(scale)
    repeats = config.num_attention_heads // config.num_key_value_heads
    for feeder, reader, times in (
        ("self_attn.v_proj", "self_attn.o_proj", repeats),
        ("mlp.up_proj", "mlp.down_proj", 1),
    ):
        rows = tensors[f"{layer}{feeder}.weight"]
        scale = torch.exp2(torch.rand(len(rows), generator=torch.Generator().manual_seed(0)) - 0.5)
        rows /= scale[:, None]
        heads = scale.reshape(-1, len(rows) // config.num_key_value_heads if times > 1 else 1)
        tensors[f"{layer}{reader}.weight"] *= heads.repeat_interleave(times, 0).reshape(-1)


def _write_configuration(checkpoint: Checkpoint, folder: Path) -> None:
    tokenizer = checkpoint.tokenizer
    if tokenizer is None:
        raise SystemExit(f"{checkpoint.id} has no tokenizer")
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": list(tokenizer.eos_ids), "pad_token_id": tokenizer.pad_id}
    config = checkpoint.config.to_dict() | ids
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer.json_text, encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": tokenizer.chat_template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
