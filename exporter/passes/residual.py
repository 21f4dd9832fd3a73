"""Pass 9: the residual addition after a Linear moves into it."""

from __future__ import annotations

import onnx_ir as ir

from .match import input_of, producer, replace
from .row_graph import row_dims

RESIDUAL = 4  # input of Linear


def fold_residual(model: ir.Model) -> None:
    """R + Linear(x) -> Linear(x, residual=r); (Linear(a) + Linear(b)) + r has the first one take r."""
    for node in list(model.graph):
        if node.op_type != "Add":
            continue
        for index in (1, 0):
            linear, other = producer(node.inputs[index], "Linear"), input_of(node, 1 - index)
            if linear is None or row_dims(other) != row_dims(linear.outputs[0]):
                continue
            if _is_free(linear):
                inputs = list(linear.inputs)
                inputs[RESIDUAL] = other
                replace(node, ir.node("Linear", inputs, linear.attributes, domain=linear.domain))
                break
            first = producer(linear.inputs[RESIDUAL], "Linear")
            if first is not None and _is_free(first) and len(linear.outputs[0].uses()) == 1 and _precedes(other, first):
                first.replace_input_with(RESIDUAL, other)
                ir.convenience.replace_all_uses_with(node.outputs[0], linear.outputs[0], replace_graph_outputs=True)
                model.graph.remove(node, safe=True)
                break


def _is_free(linear: ir.Node) -> bool:
    return linear.inputs[RESIDUAL] is None and len(linear.outputs[0].uses()) == 1


def _precedes(value: ir.Value, node: ir.Node) -> bool:
    """Whether a value is there when a node runs."""
    maker = value.producer()
    if maker is None or maker.graph is None:
        return True
    for item in maker.graph:
        if item is maker or item is node:
            return item is maker
    return False
