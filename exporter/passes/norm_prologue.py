"""Pass 10: an RMSNorm moves into the Linear layers that read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from .match import input_of, layer_index, producer

if TYPE_CHECKING:
    from .plan import Plan

NORM_WEIGHT = 3  # input of Linear
_NAMES = {"input_layernorm": "input_norm", "post_attention_layernorm": "post_norm"}


def fold_norms(model: ir.Model, plan: Plan) -> None:
    """Linear(RMSNorm(x, weight)) -> Linear(x, norm_weight=weight)."""
    for node in model.graph:
        norm = producer(node.inputs[0], "RMSNorm") if node.op_type == "Linear" else None
        if norm is not None:
            weight = input_of(norm, 1)
            node.replace_input_with(0, norm.inputs[0])
            node.replace_input_with(NORM_WEIGHT, plan.vector(_name(str(weight.name)), [weight]))
            node.attributes["norm_epsilon"] = ir.AttrFloat32("norm_epsilon", norm.attributes["epsilon"].as_float())


def _name(parameter: str) -> str:
    layer, module = layer_index(parameter), parameter.split(".")[-2]
    return "final_norm" if layer is None else f"layers.{layer}.{_NAMES.get(module, module)}"
