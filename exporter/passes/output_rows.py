"""Pass 10: the rows whose logits are wanted are taken before the last norm; torch computes those of all."""

from __future__ import annotations

import onnx_ir as ir

from pilotfish.exporter.contract import DOMAIN

from .match import insert_before, refuse
from .row_graph import row_dims


def gather_output_rows(model: ir.Model, shared: dict[str, ir.Value]) -> None:
    """Puts GatherRows(x, output_rows) where the last value is that a layer makes."""
    graph = model.graph
    node, value = _last_linear(graph)
    value = _before_last_nodes(value)
    uses = list(value.uses())
    if len(uses) != 1:
        raise refuse(node, f"the logits come from a value that {len(uses)} nodes read")
    rows = ir.node("GatherRows", [value, shared["output_rows"]], domain=DOMAIN)
    rows.outputs[0].shape = value.shape
    insert_before(uses[0].node, rows)
    uses[0].node.replace_input_with(uses[0].idx, rows.outputs[0])


def _last_linear(graph: ir.Graph) -> tuple[ir.Node, ir.Value]:
    node = graph.outputs[0].producer()
    while node is not None and node.op_type != "Linear":
        node = _row_of(node)[1]
    if node is None or node.inputs[0] is None:
        raise refuse(next(iter(graph)), "its logits do not come from a linear layer")
    return node, node.inputs[0]


def _row_of(node: ir.Node) -> tuple[ir.Value | None, ir.Node | None]:
    """The only input of a node that another node makes."""
    rows = [value for value in node.inputs if value is not None and value.producer() is not None]
    return (rows[0], rows[0].producer()) if len(set(rows)) == 1 else (None, None)


def _before_last_nodes(value: ir.Value) -> ir.Value:
    """Above nodes with one row that nothing else reads: norms, and projections behind them. The last matrix there."""
    matrix = value
    while (node := value.producer()) is not None and len(value.uses()) == 1:
        above, _ = _row_of(node)
        if above is None or node.op_type in ("Gather", "Embedding", "PagedAttention", "Reshape") or not row_dims(above):
            break
        if node.op_type == "Linear" and node.inputs[4] is not None:
            break
        if len(above.uses()) != 1:
            break
        value = above
        if len(row_dims(value)) == 1:
            matrix = value
    return matrix
