"""Pass 2: the arithmetic of an RMSNorm or LayerNorm, however it is written, becomes one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter.contract import DOMAIN

from .match import constant, producer, replace
from .row_graph import row_dims

if TYPE_CHECKING:
    from .plan import Plan


def fuse_norms(model: ir.Model, plan: Plan) -> None:
    """Weight * x / sqrt(mean(x^2) + epsilon) over the last axis -> RMSNorm(x, weight); of y - mean(y) a LayerNorm."""
    for node in list(model.graph):
        found = _normalised(node)
        if found is not None:
            x, epsilon = found
            new = ir.node("RMSNorm", [x, None], {"epsilon": epsilon}, domain=DOMAIN)
            replace(node, new)
    for node in list(model.graph):
        norm = _weighted(node, plan)
        if norm is not None:
            weight = next(value for value in node.inputs if plan.is_pending(value))
            replace(node, ir.node("RMSNorm", [norm.inputs[0], weight], norm.attributes, domain=DOMAIN))
    for node in list(model.graph):
        centred = _centred(node)
        if centred is not None:
            weight = plan.ones(row_dims(centred)[-1]) if node.inputs[1] is None else node.inputs[1]
            attributes = {"axis": -1, "epsilon": node.attributes["epsilon"].as_float(), "stash_type": 1}
            replace(node, ir.node("LayerNormalization", [centred, weight], attributes))


def _normalised(node: ir.Node) -> tuple[ir.Value, float] | None:
    """Input and epsilon of a node that makes x / sqrt(mean(x^2) + epsilon)."""
    if node.op_type == "Div":
        pairs = [(node.inputs[0], _square_root_of(node.inputs[1]))]
    elif node.op_type == "Mul":
        pairs = [(node.inputs[1 - index], _inverse_root_of(node.inputs[index])) for index in (0, 1)]
    else:
        return None
    for x, inside in pairs:
        add = producer(inside, "Add")
        if add is None:
            continue
        for index in (0, 1):
            epsilon, mean = constant(add.inputs[index]), producer(add.inputs[1 - index], "ReduceMean")
            if x is not None and epsilon is not None and len(epsilon) == 1 and _is_mean_square(mean, x):
                return x, epsilon[0]
    return None


def _inverse_root_of(value: ir.Value | None) -> ir.Value | None:
    """A of a value 1 / sqrt(a)."""
    reciprocal, power = producer(value, "Reciprocal"), producer(value, "Pow")
    if reciprocal is not None:
        return _square_root_of(reciprocal.inputs[0])
    return power.inputs[0] if power is not None and constant(power.inputs[1]) == [-0.5] else None


def _square_root_of(value: ir.Value | None) -> ir.Value | None:
    root, power = producer(value, "Sqrt"), producer(value, "Pow")
    if root is not None:
        return root.inputs[0]
    return power.inputs[0] if power is not None and constant(power.inputs[1]) == [0.5] else None


def _is_mean_square(mean: ir.Node | None, x: ir.Value) -> bool:
    if mean is None or constant(mean.inputs[1]) != [-1.0] or row_dims(mean.outputs[0])[-1:] != (1,):
        return False
    power, product = producer(mean.inputs[0], "Pow"), producer(mean.inputs[0], "Mul")
    if power is not None:
        return power.inputs[0] is x and constant(power.inputs[1]) == [2.0]
    return product is not None and product.inputs[0] is x and product.inputs[1] is x


def _weighted(node: ir.Node, plan: Plan) -> ir.Node | None:
    """The norm without weight that a node multiplies with a vector of its last axis."""
    if node.op_type != "Mul":
        return None
    for index in (0, 1):
        weight, norm = node.inputs[index], producer(node.inputs[1 - index], "RMSNorm")
        if norm is None or weight is None or norm.inputs[1] is not None or not plan.is_pending(weight):
            continue
        if tuple(weight.shape or ()) == row_dims(norm.outputs[0])[-1:]:
            return norm
    return None


def _centred(node: ir.Node) -> ir.Value | None:
    """Y of an RMSNorm of y - mean(y)."""
    difference = producer(node.inputs[0], "Sub") if node.op_type == "RMSNorm" else None
    if difference is None:
        return None
    y, mean = difference.inputs[0], producer(difference.inputs[1], "ReduceMean")
    is_centred = mean is not None and mean.inputs[0] is y and constant(mean.inputs[1]) == [-1.0]
    return y if is_centred else None
