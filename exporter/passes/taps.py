"""Pass 12: residual streams that heads read become outputs of the graph."""

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


def add_taps(model: ir.Model, plan: Plan, taps: Sequence[int]) -> None:
    """Gather(stream into layer k, hidden_rows) -> aux_hidden.{k}; tap num_layers is the stream into the final norm.

    `hidden_rows` is empty unless the caller gives it: whoever uses no head runs the graph as if it had no taps.
    """
    if not taps:
        return
    graph = model.graph
    last = next(node for node in reversed(list(graph)) if _takes_output_rows(node))
    streams = _streams(graph)
    num_layers = len(streams)
    hidden_size = next(item.in_features for item in plan.weights.values() if item.name == "embedding")
    port = contract.HIDDEN_ROWS
    rows = ir.Value(name=port.name, type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(port.axes))
    rows.const_value = ir.tensor(np.zeros(0, dtype=np.int32), name=port.name)
    graph.inputs.append(rows)
    graph.register_initializer(rows)
    for tap in taps:
        stream = input_of(last, 0) if tap == num_layers else streams[tap]
        gather = ir.node("Gather", [stream, rows], {"axis": 0})
        insert_before(last, gather)
        out = contract.aux_hidden_port(tap, hidden_size)
        value = gather.outputs[0]
        value.name, value.type, value.shape = out.name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(out.axes)
        graph.outputs.append(value)


def _takes_output_rows(node: ir.Node) -> bool:
    return node.op_type == "Gather" and input_of(node, 1).name == "output_rows"


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
