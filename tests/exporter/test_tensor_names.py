"""A folder's tensors are found under the names that checkpoints are published with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from architectures import config_of
from safetensors.torch import load_file, save_file
from tiny_models import save_model

from pilotfish.exporter import ExportOptions, ModelFormats, export
from pilotfish.exporter.errors import UnusedTensorError

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ExportOptions(target=ModelFormats("f32", "f32", "f32"), parity=False)


def test_a_checkpoint_of_the_layers_alone(tmp_path: Path) -> None:
    """GPT-2 is published so: wte.weight and h.0..., without the prefix that its class has; masks lie beside them."""
    folder = save_model(tmp_path / "model", config_of("GPT-2"))
    whole = export(str(folder), tmp_path / "whole", options=QUICK)
    tensors = load_file(folder / "model.safetensors")
    assert all(name.startswith("transformer.") for name in tensors)
    alone = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 256, 256) for layer in range(2)}
    save_file(alone | masks, folder / "model.safetensors")
    again = export(str(folder), tmp_path / "again", options=QUICK)
    assert (again.folder / "target.bin").read_bytes() == (whole.folder / "target.bin").read_bytes()
    save_file({**tensors, "wte.weight": alone["wte.weight"] + 1}, folder / "model.safetensors")
    with pytest.raises(UnusedTensorError, match=r"does not use \(wte\.weight\)"):
        export(str(folder), tmp_path / "both", options=QUICK)
