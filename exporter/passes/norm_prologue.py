"""Pass 11: an RMSNorm moves into the Linear layers that read it; others become ONNX's operator for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from .match import input_of, layer_index, producer, replace
from .row_graph import row_dims

if TYPE_CHECKING:
    from .plan import Plan

NORM_WEIGHT = 3  # input of Linear
_NAMES = {"input_layernorm": "input_norm", "post_attention_layernorm": "post_norm"}


def fold_norms(model: ir.Model, plan: Plan) -> None:
    """Linear(RMSNorm(x, weight)) -> Linear(x, norm_weight=weight)."""
    for node in model.graph:
        norm = producer(node.inputs[0], "RMSNorm") if node.op_type == "Linear" else None
        if norm is not None:
            node.replace_input_with(0, norm.inputs[0])
            node.replace_input_with(NORM_WEIGHT, _stored_weight(norm, plan))
            node.attributes["norm_epsilon"] = ir.AttrFloat32("norm_epsilon", norm.attributes["epsilon"].as_float())


def lower_norms(model: ir.Model, plan: Plan) -> None:
    """RMSNorm(x, weight) -> SimplifiedLayerNormalization(x, weight)."""
    for node in list(model.graph):
        if node.op_type == "RMSNorm":
            epsilon = node.attributes["epsilon"].as_float()
            attributes: dict[str, int | float] = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
            inputs = [node.inputs[0], _stored_weight(node, plan)]
            replace(node, ir.node("SimplifiedLayerNormalization", inputs, attributes))


def store_pending(model: ir.Model, plan: Plan) -> None:
    """Whatever other nodes read of parameters becomes stored vectors."""
    for node in model.graph:
        for index, value in enumerate(node.inputs):
            if plan.is_pending(value) and value is not None:
                node.replace_input_with(index, _stored(value, plan))


def _stored_weight(norm: ir.Node, plan: Plan) -> ir.Value:
    weight = norm.inputs[1]
    return _stored(plan.ones(row_dims(input_of(norm, 0))[-1]) if weight is None else weight, plan)


def _stored(value: ir.Value, plan: Plan) -> ir.Value:
    source = str(value.name)
    name = next((item.name for item in plan.vectors.values() if item.sources == (source,) and item.is_plain), None)
    stored = plan.vector(_name(source, plan) if name is None else name, [value])
    stored.shape = value.shape
    return stored


def _name(source: str, plan: Plan) -> str:
    parts = source.split(".")
    layer, module = layer_index(source), parts[-2]
    if parts[0] in ("ones", "zeros"):
        return source
    short = _NAMES.get(module, module)
    name = "final_norm" if layer is None else f"layers.{layer}.{short}"
    if parts[-1] == "bias":
        name += "_bias"
    is_taken = name in plan.vectors and plan.vectors[name].sources != (source,)
    return source if is_taken else name
