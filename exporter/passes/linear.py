"""Pass 7: a projection that stands alone becomes a packed Linear; also builds Linear nodes for the other passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter.contract import DOMAIN

from .match import input_of, layer_index, refuse, replace

if TYPE_CHECKING:
    from .plan import PackedWeight, Plan

_NAMES = {"o_proj": "o", "down_proj": "down"}


def parameters_of(projection: ir.Node) -> tuple[ir.Value, ir.Value | None]:
    """Weight and bias of a traced projection."""
    return input_of(projection, 1), (*projection.inputs, None, None)[2]


def linear_node(
    plan: Plan, weight: PackedWeight, x: ir.Value, bias: ir.Value | None, *, activation: str = "none"
) -> ir.Node:
    """A Linear of the contract without norm and residual: later passes add those."""
    attributes: dict[str, str | int | float] = {
        "format": weight.format,
        "in_features": weight.in_features,
        "out_features": weight.out_features,
        "activation": activation,
        "norm_epsilon": 0.0,
    }
    return ir.node("Linear", [x, plan.value(weight.name), bias, None, None], attributes, domain=DOMAIN)


def pack_projections(model: ir.Model, plan: Plan) -> None:
    """Projection(x, weight, bias) -> Linear(x, packed weight, bias)."""
    for node in list(model.graph):
        if node.op_type == "Projection":
            weight, bias = parameters_of(node)
            if str(weight.name) not in plan.parameters:
                raise refuse(node, "a linear layer's weight is computed, not stored")
            name = _name(str(weight.name))
            role = "lm_head" if name == "lm_head" else "linear"
            packed = plan.weight(name, (weight,), role)
            stored = None if bias is None else plan.vector(f"{name}_bias", (bias,))
            replace(node, linear_node(plan, packed, input_of(node, 0), stored))


def _name(parameter: str) -> str:
    """Stored name of a projection: 'model.layers.3.mlp.down_proj.weight' -> 'layers.3.down'."""
    layer, module = layer_index(parameter), parameter.split(".")[-2]
    return "lm_head" if layer is None else f"layers.{layer}.{_NAMES.get(module, module)}"
