"""Pass 4: gate and up projections with their activation become one packed Linear, where the operator has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter.contract import TILE_ROWS

from .layout import in_order, joined, rows_of
from .linear import biases_of, linear_node, parameters_of
from .match import input_of, layer_index, producer, replace, scope
from .row_graph import TOKENS

if TYPE_CHECKING:
    from .layout import Rows
    from .plan import Plan


def fuse_swiglu(model: ir.Model, plan: Plan) -> None:
    """silu(gate(x)) * up(x) -> Linear(x, gate_up) with activation swiglu."""
    for node in list(model.graph):
        if node.op_type != "Mul":
            continue
        found = _gate_and_up(node)
        packed = None if found is None else _packed(node, *found, plan)
        if packed is not None:
            replace(node, packed)


def _gate_and_up(node: ir.Node) -> tuple[Rows, Rows] | None:
    """The rows g and u of a node g * sigmoid(g) * u."""
    for index in (0, 1):
        gate, up = _silu_of(node.inputs[index]), node.inputs[1 - index]
        if gate is None or up is None:
            continue
        gate_rows, up_rows = rows_of(gate), rows_of(up)
        if gate_rows is not None and up_rows is not None:
            return gate_rows, up_rows
    return None


def _silu_of(value: ir.Value | None) -> ir.Value | None:
    """X of a value x * sigmoid(x)."""
    product = producer(value, "Mul")
    if product is None:
        return None
    for index in (0, 1):
        sigmoid = producer(product.inputs[index], "Sigmoid")
        if sigmoid is not None and sigmoid.inputs[0] is product.inputs[1 - index]:
            return sigmoid.inputs[0]
    return None


def _packed(node: ir.Node, gate: Rows, up: Rows, plan: Plan) -> ir.Node | None:
    projections, numbers = joined([gate, up])
    transposed = {parameters_of(item)[2] for item in projections}
    count = gate.rows.numel()
    if count != up.rows.numel() or len(transposed) != 1 or len({item.inputs[0] for item in projections}) != 1:
        return None
    if gate.factor != 1 or up.factor != 1 or gate.rows.ndim != 1:
        return None
    if count % TILE_ROWS:
        plan.unfused.append(f"{scope(node)}: gate and up have {count} rows, not a multiple of {TILE_ROWS}")
        return None
    rows = in_order(numbers, projections)
    sources = [parameters_of(item)[0] for item in projections]
    layer = layer_index(str(sources[0].name))
    name = f"layers.{layer}.gate_up"
    weight = plan.weight(name, sources, "linear", interleaved=True, rows=rows, transposed=transposed.pop())
    biases = biases_of(projections, plan)
    bias = None if biases is None else plan.vector(f"{name}_bias", biases, interleaved=True, rows=rows)
    new = linear_node(plan, weight, input_of(projections[0], 0), bias, activation="swiglu")
    new.outputs[0].shape = ir.Shape([TOKENS, count])
    return new
