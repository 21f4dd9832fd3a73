"""How linear layers and the operators of pilotfish's domain act on the cores of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pilotfish.exporter.contract import DOMAIN

from .match import input_of, refuse
from .row_graph import core_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from .lower import Lowering

MATRIX = 2  # axes


def permutation(node: ir.Node, rank: int) -> list[int]:
    """Which axis of the input each axis of a Transpose's result is."""
    return list(node.attributes["perm"].as_ints()) if "perm" in node.attributes else list(range(rank))[::-1]


def rms_norm(lowering: Lowering, node: ir.Node) -> None:
    """Of a model that asks for it by this name."""
    weight = (*node.inputs, None)[1]
    stored = None if weight is None else lowering.constant(weight, lowering.shape(weight))
    inputs, dims = [lowering.core(input_of(node, 0)), stored], core_of(lowering.shape(node.outputs[0]))
    lowering.set_core(node.outputs[0], lowering.graph.op("RMSNorm", inputs, dims, node.attributes, domain=DOMAIN))


def projection(lowering: Lowering, node: ir.Node) -> None:
    """A linear layer; MatMul and Gemm with a parameter have its weight transposed."""
    x, weight = input_of(node, 0), input_of(node, 1)
    bias = (*node.inputs, None)[2]
    transposed = node.op_type != "Projection"
    if node.op_type == "Gemm":
        given = {name: node.attributes[name].value for name in ("alpha", "beta", "transA") if name in node.attributes}
        if given.get("transA", 0) or given.get("alpha", 1.0) != 1 or given.get("beta", 1.0) != 1:
            raise refuse(node, "its linear layer is scaled")
        transposed = not (node.attributes["transB"].as_int() if "transB" in node.attributes else 0)
    above = weight.producer()
    if above is not None and above.op_type == "Transpose" and permutation(above, MATRIX) == [1, 0]:
        weight, transposed = input_of(above, 0), not transposed
    if weight.name not in lowering.plan.parameters or len(lowering.shape(weight)) != MATRIX:
        raise refuse(node, "a linear layer's weight is computed, not stored")
    num_columns, num_rows = lowering.shape(weight) if transposed else reversed(lowering.shape(weight))
    if math.prod(core_of(lowering.shape(x))) != num_columns:
        raise refuse(node, "a linear layer is applied to each head by itself")
    if bias is not None and math.prod(lowering.shape(bias)) != num_rows:
        raise refuse(node, "a linear layer has one bias for several rows")
    stored = None if bias is None else lowering.constant(bias, lowering.shape(bias))
    inputs = [lowering.graph.reshape(lowering.core(x), (num_columns,)), lowering.graph.parameter(weight), stored]
    attributes = {"transposed": int(transposed)}
    core = lowering.graph.op("Projection", inputs, (num_rows,), attributes, domain=DOMAIN)
    lowering.set_core(node.outputs[0], core)


def attention(lowering: Lowering, node: ir.Node) -> None:
    """Heads of query, key and value as [num_tokens, num_heads, head_dim]."""
    heads = []
    for index in range(3):
        value = input_of(node, index)
        _, num_heads, _, head_dim = lowering.shape(value)
        heads.append(lowering.graph.reshape(lowering.core(value), (num_heads, head_dim)))
    _, num_tokens, num_heads, head_dim = lowering.shape(node.outputs[0])
    if num_tokens != 1:
        raise refuse(node, "its attention has a shape of its own")
    biases, sinks = (*node.inputs[3:], None, None)[:2]
    special = [
        None if biases is None else lowering.core(biases),
        None if sinks is None else lowering.constant(sinks, (num_heads,)),
    ]
    core = lowering.graph.op("Attention", [*heads, *special], (num_heads, head_dim), node.attributes, domain=DOMAIN)
    lowering.set_core(node.outputs[0], core)
