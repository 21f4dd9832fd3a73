"""LoRA adapters of random numbers, as peft saves them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

if TYPE_CHECKING:
    from pathlib import Path

Tensors = dict[str, torch.Tensor]


def pair(module: str, rows: int, columns: int, rank: int = 4) -> Tensors:
    """The two halves of a module's pair, by the names that peft saves them under."""
    torch.manual_seed(len(module) + rank)
    return {
        f"base_model.model.{module}.lora_A.weight": 0.2 * torch.randn(rank, columns),
        f"base_model.model.{module}.lora_B.weight": 0.2 * torch.randn(rows, rank),
    }


def save_adapter(folder: Path, tensors: Tensors, **settings: Any) -> str:
    """The folder's name; settings: other than the usual ones of adapter_config.json."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 12, "base_model_name_or_path": "some/base"} | settings
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "adapter_model.safetensors")
    return str(folder)
