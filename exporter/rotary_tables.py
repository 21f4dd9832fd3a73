"""The tables of a model that its positions decide, such as cos and sin: what its own modules compute for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .errors import CheckpointError, UnsupportedModelError
from .passes.evaluate import Evaluator

if TYPE_CHECKING:
    import onnx_ir as ir
    from transformers import PreTrainedModel

    from .passes import Plan
    from .sources import WeightSource

Array = np.ndarray[Any, np.dtype[Any]]
# Frequencies that do not depend on the sequence's length, and those that do not up to the length of training.
_FIXED_TYPES = ("default", "linear", "llama3", "yarn", "proportional")
_FIXED_BELOW = ("dynamic", "longrope")


def check_rope_type(config: object, *, fixed: bool = False) -> None:
    """Refuses rotary embeddings of a kind that is not known; fixed: also those that change beyond a length.

    Raises:
        UnsupportedModelError: naming the type.
    """
    supported = _FIXED_TYPES if fixed else _FIXED_TYPES + _FIXED_BELOW
    if fixed and _differs_by_layer(config):
        raise UnsupportedModelError("rope_parameters differ between layer types; one table for all layers is supported")
    for parameters in _each(config):
        rope_type = _type_of(parameters)
        if rope_type not in supported:
            raise UnsupportedModelError(f"rope type is {rope_type!r}; supported are {', '.join(supported)}")


def rotary_limit(config: Any) -> int | None:
    """The most positions that one table serves; None: as many as the configuration says."""
    limits = []
    for parameters in _each(config):
        if _type_of(parameters) == "longrope":
            original = parameters.get("original_max_position_embeddings")
            limits.append(original or getattr(config, "original_max_position_embeddings", None))
    return min((int(limit) for limit in limits if limit), default=None)


def fix_frequencies(model: PreTrainedModel) -> None:
    """Keeps rotary modules from choosing frequencies by length, which they have one set of below `rotary_limit`."""
    module: Any
    for module in model.modules():
        kind = getattr(module, "rope_type", None)
        if isinstance(kind, dict):
            module.rope_type = {layer: _fixed(item) for layer, item in kind.items()}
        elif isinstance(kind, str):
            module.rope_type = _fixed(kind)


def _fixed(kind: str) -> str:
    return "default" if kind in _FIXED_BELOW else kind


def _each(config: object) -> list[dict[str, Any]]:
    """The rope parameters, or those of each kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    if _differs_by_layer(config):
        return [value for value in parameters.values() if isinstance(value, dict)]
    return [parameters]


def _differs_by_layer(config: object) -> bool:
    parameters = getattr(config, "rope_parameters", None) or {}
    return any(isinstance(value, dict) for value in parameters.values())


def _type_of(parameters: dict[str, Any]) -> str:
    return str(parameters.get("rope_type") or parameters.get("type") or "default")  # the second is the old spelling


def rotary_tables(plan: Plan, source: WeightSource, num_positions: int) -> dict[str, Array]:
    """Every table of a plan by its stored name: f32 [num_positions, columns]."""
    positions = torch.arange(num_positions)[:, None]

    def given(value: ir.Value) -> torch.Tensor | None:
        name = str(value.name)
        if name in ("input_ids", "position_ids") and value.producer() is None:
            return positions
        if name in plan.buffers:
            return plan.buffers[name]
        return torch.from_numpy(source.read(name).copy()) if name in plan.parameters else None

    evaluate = Evaluator(given)
    return {name: _stored(plan, name, evaluate(value), num_positions) for name, value in plan.tables.items()}


def _stored(plan: Plan, name: str, values: torch.Tensor, num_positions: int) -> Array:
    rows = values.reshape(values.shape[0], -1).to(torch.float32)
    if not rows.isfinite().all():
        raise CheckpointError(
            f"{name}, computed of positions, is not finite; look at the numbers of the rope parameters"
        )
    if rows.shape[0] == 1:
        rows = rows.expand(num_positions, -1)
    columns = plan.halves.get(name)
    if columns is None:
        return rows.contiguous().numpy()
    others = [column for column in range(rows.shape[1]) if column not in set(columns)]
    kept = rows[:, list(columns)]
    if others and not torch.equal(kept, rows[:, others]):
        raise UnsupportedModelError(
            f"the angles of {name} differ between the columns that rotate together; they must be the same"
        )
    return kept.contiguous().numpy()
