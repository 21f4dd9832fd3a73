"""Passes 6 and 9: the batch axis of torch's model disappears, and rows are gathered before the last norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter import contract

from .match import describe, input_of, insert_before, producer, refuse, replace

if TYPE_CHECKING:
    from .plan import Plan


def gather_output_rows(model: ir.Model, shared: dict[str, ir.Value]) -> None:
    """RMSNorm(x)[:, output_rows] -> RMSNorm(Gather(x, output_rows)); torch indexes after the norm."""
    for node in list(model.graph):
        if node.op_type != "GatherND":
            continue
        before, after = producer(node.inputs[0], "Transpose"), next(iter(node.outputs[0].uses())).node
        norm = producer(before.inputs[0], "RMSNorm") if before is not None else None
        if norm is None or after.op_type != "Transpose":
            raise refuse(node, f"the logits' rows come from {describe(input_of(node, 0))}, not from a final RMSNorm")
        rows = ir.node("Gather", [input_of(norm, 0), shared["output_rows"]], {"axis": 0})
        insert_before(after, rows)
        replace(after, ir.node("RMSNorm", [rows.outputs[0], norm.inputs[1]], norm.attributes, domain=norm.domain))


def flatten_tokens(model: ir.Model, plan: Plan, shared: dict[str, ir.Value]) -> None:
    """Embeds input_ids directly, drops reshapes that only serve the batch axis, and takes logits as they come."""
    for node in list(model.graph):
        if node.op_type == "Gather" and str(input_of(node, 0).name) in plan.parameters:
            replace(node, _embedding(node, plan, shared["input_ids"]))
        elif node.op_type == "Reshape" and producer(node.inputs[0], "PagedAttention") is not None:
            ir.convenience.replace_all_uses_with(node.outputs[0], input_of(node, 0))
        elif node.op_type == "Gather" and node.outputs[0].is_graph_output():
            ir.convenience.replace_all_uses_with(node.outputs[0], input_of(node, 0), replace_graph_outputs=True)


def _embedding(node: ir.Node, plan: Plan, input_ids: ir.Value) -> ir.Node:
    weight = plan.weight("embedding", [input_of(node, 0)], "embedding")
    attributes: dict[str, str | int | float] = {
        "format": weight.format,
        "num_rows": weight.out_features,
        "num_columns": weight.in_features,
        "scale": 1.0,
    }
    return ir.node("Embedding", [input_ids, plan.value(weight.name)], attributes, domain=contract.DOMAIN)
