"""Pass 12: rows that are looked up by position become nodes of ours."""

from __future__ import annotations

import onnx_ir as ir

from pilotfish.exporter.contract import DOMAIN

from .match import input_of, replace


def look_up_rows(model: ir.Model) -> None:
    """Gather(table, position_ids) -> GatherRows."""
    for node in list(model.graph):
        if node.domain == "" and node.op_type == "Gather" and input_of(node, 1).name == "position_ids":
            replace(node, ir.node("GatherRows", node.inputs, domain=DOMAIN))
