"""Pass 7: a projection that stands alone becomes a packed Linear; also builds Linear nodes for the other passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter.contract import BLOCK_COLUMNS, DOMAIN, TILE_ROWS

from .match import input_of, layer_index, replace, static_shape, sweep
from .row_graph import TOKENS, row_dims

if TYPE_CHECKING:
    from .plan import PackedWeight, Plan

_NAMES = {"o_proj": "o", "down_proj": "down"}


def parameters_of(projection: ir.Node) -> tuple[ir.Value, ir.Value | None, bool]:
    """Weight and bias of a traced projection, and whether the weight is [in_features, out_features]."""
    transposed = projection.attributes.get("transposed")
    is_transposed = transposed is not None and bool(transposed.as_int())
    return input_of(projection, 1), (*projection.inputs, None, None)[2], is_transposed


def biases_of(projections: list[ir.Node], plan: Plan) -> list[ir.Value] | None:
    """The biases of projections that become one; zeros for those that have none. None: no one has a bias."""
    found = [parameters_of(item)[1] for item in projections]
    if all(bias is None for bias in found):
        return None
    sizes = [row_dims(item.outputs[0])[0] for item in projections]
    return [plan.zeros(size) if bias is None else bias for bias, size in zip(found, sizes, strict=True)]


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


def fold_biases(model: ir.Model, plan: Plan) -> None:
    """Projection(x, weight) + a stored vector -> Projection(x, weight, bias), of models that add it by themselves."""
    for node in list(model.graph):
        if node.op_type != "Add":
            continue
        for projection, bias in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
            made = None if projection is None else projection.producer()
            if made is None or made.op_type != "Projection" or not plan.is_pending(bias) or projection is None:
                continue
            is_its_own = len(projection.uses()) == 1 and parameters_of(made)[1] is None
            if is_its_own and bias is not None and static_shape(bias) == row_dims(projection):
                made.replace_input_with(2, bias)
                ir.convenience.replace_all_uses_with(node.outputs[0], projection, replace_graph_outputs=True)
                break
    sweep(model.graph)


def pack_projections(model: ir.Model, plan: Plan) -> None:
    """Projection(x, weight, bias) -> Linear(x, packed weight, bias); a small one becomes a row-wise node."""
    head = _head(model.graph.outputs[0])
    for node in list(model.graph):
        if node.op_type == "Projection":
            weight, bias, transposed = parameters_of(node)
            if node is not head and not transposed and _is_small(plan.shape(str(weight.name))):
                replace(node, _row_wise(node, weight, bias))
                continue
            role = "lm_head" if node is head else "linear"
            name = role if node is head else _name(str(weight.name), plan)
            packed = plan.weight(name, (weight,), role, transposed=transposed)
            stored = None if bias is None else plan.vector(f"{name}_bias", (bias,), rows=_kept(plan, role))
            new = linear_node(plan, packed, input_of(node, 0), stored)
            replace(node, new)
            new.outputs[0].shape = ir.Shape([TOKENS, packed.out_features])


def _is_small(shape: tuple[int, ...]) -> bool:
    """Less than a packed tile of rows, or than a block of columns: as those that mix a few residual streams."""
    return shape[0] < TILE_ROWS or shape[1] < BLOCK_COLUMNS


def _row_wise(node: ir.Node, weight: ir.Value, bias: ir.Value | None) -> ir.Node:
    """As a node that can be a step of a RowSteps."""
    new = ir.node("Gemm", [input_of(node, 0), weight, *([] if bias is None else [bias])], {"transB": 1})
    new.outputs[0].shape, new.outputs[0].type = node.outputs[0].shape, node.outputs[0].type
    return new


def _kept(plan: Plan, role: str) -> tuple[int, ...] | None:
    return plan.logit_ids if role == "lm_head" else None


def _head(logits: ir.Value) -> ir.Node | None:
    """The projection that makes the logits, whatever is done with them after it."""
    node = logits.producer()
    while node is not None and node.op_type != "Projection":
        rows = [value for value in node.inputs if value is not None and value.producer() is not None]
        node = rows[0].producer() if rows else None
    return node


def _name(parameter: str, plan: Plan) -> str:
    """Stored name of a projection: 'model.layers.3.mlp.down_proj.weight' -> 'layers.3.down'."""
    layer, path = layer_index(parameter), parameter.removesuffix(".weight")
    module = path.rpartition(".")[2]
    name = path if layer is None else f"layers.{layer}.{_NAMES.get(module, module)}"
    is_taken = any(known.name == name and known.sources != (parameter,) for known in plan.weights.values())
    return path if is_taken else name
