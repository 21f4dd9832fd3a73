"""Nodes that compute the same of the same inputs become one, so that patterns find one value where torch wrote two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Hashable


def join_duplicates(model: ir.Model) -> None:
    """Keeps the first of nodes of one operator with the same inputs and attributes."""
    known: dict[Hashable, ir.Node] = {}
    for node in list(model.graph):
        attributes = tuple(sorted((name, str(item.value)) for name, item in node.attributes.items()))
        key = node.domain, node.op_type, tuple(id(value) for value in node.inputs), attributes
        first = known.setdefault(key, node)
        if first is not node and not any(output.is_graph_output() for output in node.outputs):
            ir.convenience.replace_all_uses_with(node.outputs, first.outputs)
            model.graph.remove(node, safe=True)
