"""Pass 12: residual streams that heads read become outputs of the graph, before the nodes that make them are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from pilotfish.exporter import contract

from .match import input_of, insert_before, producer, refuse
from .norm_prologue import NORM_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Plan

_NORMS = ("LayerNormalization", "SimplifiedLayerNormalization")


def gather_taps(model: ir.Model, taps: Sequence[int]) -> list[ir.Value]:
    """GatherRows(stream into layer k, hidden_rows) for each tap; tap num_layers is the stream into the final norm."""
    if not taps:
        return []
    graph = model.graph
    last = next(node for node in reversed(list(graph)) if _takes_output_rows(node))
    streams = [*_streams(graph), input_of(last, 0)]
    port = contract.HIDDEN_ROWS
    rows = ir.Value(name=port.name, type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(port.axes))
    found = []
    for tap in taps:
        gather = ir.node("GatherRows", [streams[tap], rows], domain=contract.DOMAIN)
        insert_before(last, gather)
        graph.outputs.append(gather.outputs[0])
        found.append(gather.outputs[0])
    return found


def finish_taps(model: ir.Model, plan: Plan, taps: Sequence[int], values: Sequence[ir.Value]) -> None:
    """Names the outputs of taps, and registers the input that says which rows.

    `hidden_rows` is empty unless the caller gives it: whoever uses no head runs the graph as if it had no taps.
    """
    for tap, value in zip(taps, values, strict=True):
        gather = value.producer()
        rows = None if gather is None else gather.inputs[1]
        if rows is not None and rows not in model.graph.inputs:
            rows.const_value = ir.tensor(np.zeros(0, dtype=np.int32), name=rows.name)
            model.graph.inputs.append(rows)
            model.graph.register_initializer(rows)
        hidden_size = next(item.in_features for item in plan.weights.values() if item.name == "embedding")
        out = contract.aux_hidden_port(tap, hidden_size)
        value.name, value.type, value.shape = out.name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(out.axes)


def _takes_output_rows(node: ir.Node) -> bool:
    return node.op_type == "GatherRows" and input_of(node, 1).name == "output_rows"


def _streams(graph: ir.Graph) -> list[ir.Value]:
    """The residual stream into each layer: what the projections before its attention read, above their norm."""
    found = []
    for node in graph:
        if node.op_type != "PagedAttention":
            continue
        linear = producer(node.inputs[0], "Linear")
        if linear is None:
            raise refuse(node, "a head needs the stream into each layer, and this one's query, key and value differ")
        stream = input_of(linear, 0)
        norm = stream.producer()
        if linear.inputs[NORM_WEIGHT] is None and norm is not None and norm.op_type in _NORMS:
            stream = input_of(norm, 0)
        found.append(stream)
    return found
