"""Pass 8: a number that a Linear's result is multiplied with moves into its weights."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import TYPE_CHECKING

import onnx_ir as ir

from .match import constant, input_of, producer
from .residual import RESIDUAL

if TYPE_CHECKING:
    from .plan import Plan

_WEIGHT, _BIAS = 1, 2  # inputs of Linear


def fold_scales(model: ir.Model, plan: Plan) -> None:
    """Linear(x) * number -> Linear(x) whose weights and bias are that much larger."""
    for node in list(model.graph):
        if node.op_type != "Mul":
            continue
        for index in (0, 1):
            factor, linear = constant(node.inputs[1 - index]), producer(node.inputs[index], "Linear")
            if factor is not None and len(factor) == 1 and linear is not None and _takes_scale(linear, plan):
                _multiply(linear, factor[0], plan)
                ir.convenience.replace_all_uses_with(node.outputs[0], linear.outputs[0], replace_graph_outputs=True)
                model.graph.remove(node, safe=True)
                break


def _takes_scale(linear: ir.Node, plan: Plan) -> bool:
    """Whether nothing else reads the result or the weights, and nothing is added before."""
    weight = input_of(linear, _WEIGHT)
    return (
        len(linear.outputs[0].uses()) == 1
        and linear.inputs[RESIDUAL] is None
        and linear.attributes["activation"].as_string() == "none"
        and len(weight.uses()) == 1
        and weight.name != "lm_head"
        and weight.name in plan.weights
    )


def _multiply(linear: ir.Node, factor: float, plan: Plan) -> None:
    name = str(input_of(linear, _WEIGHT).name)
    plan.weights[name] = changed(plan.weights[name], scale=plan.weights[name].scale * factor)
    bias = linear.inputs[_BIAS]
    if bias is not None:
        vector = plan.vectors[str(bias.name)]
        plan.vectors[vector.name] = changed(vector, scale=vector.scale * factor)
