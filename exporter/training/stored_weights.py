"""The target's matrices with the very values that a bundle stores, so that the draft imitates what will run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from pilotfish.exporter.quantise import quantise

if TYPE_CHECKING:
    from pilotfish.exporter.options import ModelFormats
    from pilotfish.exporter.sources import WeightSource

_LOW_BIT = ("int4", "int4_asym", "int8")
_FLOATS = {"f16": torch.float16, "f32": torch.float32}


def store_as(model: Any, formats: ModelFormats, source: WeightSource) -> None:
    """Replaces every matrix of a transformers model, in f32, by its stored form's values.

    A head tied to the embedding is untied first where their formats differ. Blocks that a GGUF file holds in the very
    format are taken as they are, as in an export.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    names = {module: f"{name}.weight" for name, module in model.named_modules() if _is_matrix(module)}
    if head.weight is embedding.weight:
        names[head] = names[embedding]
        if formats.lm_head != formats.embedding:
            head.weight = nn.Parameter(head.weight.detach().clone())
    done = set()
    for module, name in names.items():
        if id(module.weight) in done:
            continue
        done.add(id(module.weight))
        format_name = (
            formats.embedding if module is embedding else formats.lm_head if module is head else formats.linear
        )
        module.weight.data = stored_values(module.weight.data, format_name, source, name)


def stored_values(weight: Tensor, format_name: str, source: WeightSource, name: str) -> Tensor:
    """The f32 values that a matrix has after it was stored in one of `contract.FORMATS`."""
    if format_name not in _LOW_BIT:
        return weight.to(_FLOATS[format_name]).float()
    stored = source.read_blocks(name, format_name)
    if stored is None:
        stored = quantise(np.ascontiguousarray(weight.float().cpu().numpy()), format_name)
    return torch.from_numpy(stored.dequantise()).to(weight.device)


def _is_matrix(module: nn.Module) -> bool:
    return isinstance(module, (nn.Linear, nn.Embedding))
