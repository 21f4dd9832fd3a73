"""Pass 8: the residual addition after a Linear moves into it."""

from __future__ import annotations

import onnx_ir as ir

from .match import producer, replace

RESIDUAL = 4  # input of Linear


def fold_residual(model: ir.Model) -> None:
    """R + Linear(x) -> Linear(x, residual=r)."""
    for node in list(model.graph):
        if node.op_type != "Add":
            continue
        for index in (1, 0):
            linear, other = producer(node.inputs[index], "Linear"), node.inputs[1 - index]
            if linear is not None and linear.inputs[RESIDUAL] is None and len(linear.outputs[0].uses()) == 1:
                inputs = list(linear.inputs)
                inputs[RESIDUAL] = other
                fused = ir.node("Linear", inputs, linear.attributes, domain=linear.domain)
                replace(node, fused)
                break
