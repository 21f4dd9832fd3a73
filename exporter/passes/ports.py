"""The graph's inputs and outputs as the contract spells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter import contract
from pilotfish.exporter.data_types import DATA_TYPES

from .match import input_of
from .row_graph import row_dims

if TYPE_CHECKING:
    from .plan import Plan


def shared_inputs() -> dict[str, ir.Value]:
    """The contract's inputs that are not caches."""
    return {
        port.name: ir.Value(name=port.name, type=_tensor(port.dtype), shape=ir.Shape(port.axes))
        for port in contract.INPUTS
    }


def finish_ports(
    model: ir.Model, plan: Plan, attentions: list[ir.Node], shared: dict[str, ir.Value], cache_dtype: str
) -> None:
    """Replaces the traced inputs by the contract's, registers the stored tensors and names the logits."""
    graph = model.graph
    graph.name = "decoder"
    graph.inputs.clear()
    graph.initializers.clear()
    graph.inputs.extend(shared.values())
    for node in attentions:
        heads, head_dim = node.attributes["num_kv_heads"].as_int(), node.attributes["head_dim"].as_int()
        if "shared_kv" in node.attributes:
            continue
        for cache in (input_of(node, 8), input_of(node, 9)):
            kept = contract.cache_port(str(cache.name), cache_dtype, heads, head_dim)
            cache.type, cache.shape = _tensor(kept.dtype), ir.Shape(kept.axes)
            graph.inputs.append(cache)
    logits = graph.outputs[0]
    num_logits = row_dims(logits)[0] if plan.logit_ids is None else len(plan.logit_ids)
    port = contract.logits_port(num_logits)
    logits.name, logits.type, logits.shape = port.name, _tensor(port.dtype), ir.Shape(port.axes)
    for node in graph:
        for output in node.outputs:
            output.shape = output.shape if output is logits else None
    for value in plan.constants():
        graph.register_initializer(value)
    for value in plan.values.values():
        value.type = _tensor("u8" if value.name in plan.weights else "f32")


def _tensor(dtype: str) -> ir.TensorType:
    return ir.TensorType(DATA_TYPES[dtype])
