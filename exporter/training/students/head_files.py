"""Heads on disk: written in their published layouts, and read back to train further or to be evaluated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from pilotfish.exporter.training.errors import TrainingOptionError
from pilotfish.exporter.training.storage import storage_errors, write_text

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from pilotfish.exporter.heads import HeadCheckpoint

MAPS = ("d2t", "t2d")  # of EAGLE-3: which tokens it scores; no parameters


def save_head(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any], dtype: torch.dtype) -> None:
    """model.safetensors, floating point in `dtype`, and config.json."""
    path = folder / "model.safetensors"
    partial = path.with_name(f"{path.name}.partial")
    stored = {
        name: (tensor.detach().to(dtype) if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in tensors.items()
    }
    with storage_errors(path):
        save_file(stored, partial, metadata={"format": "pt"})
        partial.replace(path)
    named = {**config, "torch_dtype": str(dtype).removeprefix("torch.")}
    write_text(folder / "config.json", json.dumps(named, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def load_head(student: nn.Module, checkpoint: HeadCheckpoint) -> None:
    """Fills a student from a head of the same shape; tied copies that the student has once are skipped.

    Raises:
        TrainingOptionError: missing or other tensors, or another shape.
    """
    own = dict(student.named_parameters())
    tied = bool(checkpoint.config.get("tie_weights"))
    for name, parameter in own.items():
        found = checkpoint.tensors.get(name)
        shape = "missing" if found is None else list(found.shape)
        if found is None or shape != list(parameter.shape):
            raise TrainingOptionError(
                f"{checkpoint.id}: tensor {name} is {shape}, this head needs {list(parameter.shape)}"
            )
        parameter.copy_(found.float())
    extra = sorted(name for name in checkpoint.tensors if name not in own and name not in MAPS and not tied)
    if extra:
        raise TrainingOptionError(
            f"{checkpoint.id} has {len(extra)} tensors that this head has no place for, such as {extra[0]}"
        )
