"""The cos and sin tables of a model, made by its own rotary module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .errors import UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Array = np.ndarray[Any, np.dtype[Any]]
_FIXED_TYPES = ("default", "linear", "llama3", "yarn")  # frequencies do not depend on the sequence length


def check_rope_type(config: object) -> None:
    """Refuses rotary embeddings whose frequencies change with the length.

    Raises:
        UnsupportedModelError: dynamic, longrope or unknown types, or a table per layer type.
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    if any(isinstance(value, dict) for value in parameters.values()):
        raise UnsupportedModelError("rope_parameters differ between layer types; one table for all layers is supported")
    rope_type = parameters.get("rope_type") or parameters.get("type") or "default"  # the second is the old spelling
    if rope_type not in _FIXED_TYPES:
        raise UnsupportedModelError(f"rope type is {rope_type!r}; supported are {', '.join(_FIXED_TYPES)}")


def rotary_tables(model: PreTrainedModel, module_name: str, num_positions: int) -> dict[str, Array]:
    """{"cos", "sin"}: f32 [num_positions, rotary_dim / 2], attention factor included."""
    module = type(model.get_submodule(module_name))(model.config)
    with torch.no_grad():
        cos, sin = module(torch.zeros(1), torch.arange(num_positions)[None])
    half = cos.shape[-1] // 2
    return {"cos": cos[0, :, :half].contiguous().numpy(), "sin": sin[0, :, :half].contiguous().numpy()}
