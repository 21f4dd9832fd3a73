"""Pass 4: gate and up projections with their activation become one packed Linear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.exporter.contract import TILE_ROWS

from .linear import linear_node, parameters_of
from .match import describe, input_of, layer_index, producer, refuse, replace

if TYPE_CHECKING:
    import onnx_ir as ir

    from .plan import Plan


def fuse_swiglu(model: ir.Model, plan: Plan) -> None:
    """silu(gate(x)) * up(x) -> Linear(x, gate_up) with activation swiglu."""
    for node in list(model.graph):
        gate = _silu_gate(node)
        if gate is not None:
            replace(node, _packed(node, gate, _other(node, gate), plan))


def _silu_gate(node: ir.Node) -> ir.Node | None:
    """The projection g of a node g * sigmoid(g) * up, None if the node is anything else."""
    if node.op_type != "Mul":
        return None
    for value in node.inputs:
        silu = producer(value, "Mul")
        if silu is None:
            continue
        for index in (0, 1):
            sigmoid = producer(silu.inputs[index], "Sigmoid")
            if sigmoid is not None and sigmoid.inputs[0] is silu.inputs[1 - index]:
                gate = producer(sigmoid.inputs[0], "Projection")
                if gate is None:
                    raise refuse(node, f"silu applies to {describe(input_of(sigmoid, 0))}, not to a linear projection")
                return gate
    return None


def _other(node: ir.Node, gate: ir.Node) -> ir.Node:
    for value in node.inputs:
        up = producer(value, "Projection")
        if up is not None and up.inputs[0] is gate.inputs[0]:
            return up
    raise refuse(node, "silu(gate) is not multiplied by a projection of the same input")


def _packed(node: ir.Node, gate: ir.Node, up: ir.Node, plan: Plan) -> ir.Node:
    (gate_weight, gate_bias), (up_weight, up_bias) = parameters_of(gate), parameters_of(up)
    rows, up_rows = plan.shape(str(gate_weight.name))[0], plan.shape(str(up_weight.name))[0]
    if rows != up_rows or rows % TILE_ROWS:
        raise refuse(node, f"gate has {rows} rows and up {up_rows}; they must be equal and a multiple of {TILE_ROWS}")
    if (gate_bias is None) != (up_bias is None):
        raise refuse(node, "only one of gate and up has a bias")
    layer = layer_index(str(gate_weight.name))
    weight = plan.weight(f"layers.{layer}.gate_up", (gate_weight, up_weight), "linear", interleaved=True)
    bias = None
    if gate_bias is not None and up_bias is not None:
        bias = plan.vector(f"layers.{layer}.gate_up_bias", (gate_bias, up_bias), interleaved=True)
    return linear_node(plan, weight, input_of(gate, 0), bias, activation="swiglu")
