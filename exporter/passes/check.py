"""Last pass: only nodes that a bundle may have remain; says how many a layer has."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pilotfish.exporter import contract

from .match import refuse, scope

if TYPE_CHECKING:
    import onnx_ir as ir

    from .plan import Plan

FUSED_NODES = 5  # of a layer where every fusion matches
# ONNX Runtime's operators that act on each row by itself, as the native library lists them.
ROW_WISE = (
    *(
        "Abs",
        "Add",
        "And",
        "Cast",
        "Clip",
        "Concat",
        "Div",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "Gather",
        "Gelu",
        "Greater",
    ),
    *("GreaterOrEqual", "LayerNormalization", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or"),
    *("Pow", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Sigmoid"),
    *("SimplifiedLayerNormalization", "Slice", "Softmax", "Split", "Sqrt", "Sub", "Tanh", "Transpose", "Where"),
)


def check_fused(model: ir.Model, plan: Plan, num_layers: int) -> None:
    """Every layer has one attention, and every node an operator that a bundle may have; notes what is not fused.

    Raises:
        UnsupportedModelError: a node outside the contract, or another number of attentions.
    """
    for node in model.graph:
        allowed = contract.OPERATORS if node.domain == contract.DOMAIN else ROW_WISE
        if node.op_type not in allowed:
            raise refuse(node, f"its {node.op_type} is not part of a graph that a bundle may have")
        if node.domain != contract.DOMAIN:
            plan.unfused.append(f"{scope(node)}: {node.op_type}")
    found = sum(node.op_type == "PagedAttention" for node in model.graph)
    if found != num_layers:
        raise refuse(next(iter(model.graph)), f"{found} attentions were found in its {num_layers} layers")


def operators_of_runtime(graph: ir.Graph) -> list[str]:
    """Operators that ONNX Runtime computes something with."""
    return sorted({node.op_type for node in graph if node.domain != contract.DOMAIN})


def nodes_per_layer(graph: ir.Graph) -> int:
    """The most nodes that a layer has: from one attention to the next, or all but the first and the last two of one."""
    places = [index for index, node in enumerate(graph) if node.op_type == "PagedAttention"]
    between = [after - before for before, after in pairwise(places)]
    return max(between, default=len(list(graph)) - 3)
