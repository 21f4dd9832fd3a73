"""Random multi-token prediction layers in the layouts of published checkpoints, added to a tiny target's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Layout:
    """Names of the parts; {n} is the number of the target's layers."""

    joint: str
    embedding_norm: str
    state_norm: str
    final_norm: str
    layer: str
    settings: dict[str, Any]
    state_first: bool = False
    passes_normed: bool = True
    shares: tuple[str, str] = ("", "")  # own copies of the embedding and the output layer


LAYOUTS = {
    "qwen3_next": Layout(
        "mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm", "mtp.layers.0.", {}
    ),
    "deepseek": Layout(
        *(f"model.layers.{{n}}.{part}" for part in ("eh_proj", "enorm", "hnorm", "shared_head.norm", "")),
        {"num_nextn_predict_layers": 1},
        passes_normed=False,
        shares=("model.layers.{n}.embed_tokens", "model.layers.{n}.shared_head.head"),
    ),
    "mimo": Layout(
        *(
            f"model.mtp_layers.0.{part}"
            for part in ("input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm", "")
        ),
        {"num_nextn_predict_layers": 1},
        state_first=True,
    ),
}


def add_mtp(folder: Path, name: str, *, scale: float = 0.15, first: torch.Tensor | None = None) -> Tensors:
    """Adds a layer of the family of the model in `folder` to its safetensors; returns its tensors.

    scale: of random matrices. first: added to what the joint makes of the embedding.
    """
    layout = LAYOUTS[name]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    stored = load_file(folder / "model.safetensors")
    num_layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    shapes = {f"{layout.joint}.weight": (hidden, 2 * hidden)}
    shapes |= {f"{norm}.weight": (hidden,) for norm in (layout.embedding_norm, layout.state_norm, layout.final_norm)}
    for tensor, values in stored.items():  # a decoder layer like the target's first
        if tensor.startswith("model.layers.0."):
            shapes[layout.layer + tensor.removeprefix("model.layers.0.")] = tuple(values.shape)
    shapes |= {f"{share}.weight": (config["vocab_size"], hidden) for share in layout.shares if share}
    generator = torch.Generator().manual_seed(31)
    tensors = {}
    for key, shape in shapes.items():
        values = torch.randn(shape, generator=generator)
        is_norm = len(shape) == 1 and key.endswith("weight")
        tensors[key.replace("{n}", str(num_layers))] = 1 + 0.2 * values if is_norm else scale * values
    if first is not None:
        joint = tensors[f"{layout.joint}.weight".replace("{n}", str(num_layers))]
        joint[:, hidden:] += first if layout.state_first else 0
        joint[:, :hidden] += 0 if layout.state_first else first
        for share, own in zip(layout.shares, ("model.embed_tokens.weight", "lm_head.weight"), strict=True):
            if share:
                tensors[f"{share}.weight".replace("{n}", str(num_layers))] = stored[own].clone()
    save_file(stored | tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | layout.settings), encoding="utf-8")
    return tensors


def part(tensors: Tensors, name: str, num_layers: int, default: torch.Tensor | None = None) -> torch.Tensor | None:
    return tensors.get(f"{name}.weight".replace("{n}", str(num_layers)), default)
