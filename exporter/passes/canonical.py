"""Pass 1: parameters become named values without data, constants are folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnxscript.optimizer

from .plan import Plan

if TYPE_CHECKING:
    import onnx_ir as ir

    from .plan import Formats


def canonicalise(model: ir.Model, formats: Formats, logit_ids: tuple[int, ...] | None) -> Plan:
    """Turns parameters (initializers without data) into graph inputs and folds every constant subgraph."""
    graph = model.graph
    parameters = {}
    for name, value in list(graph.initializers.items()):
        if value.const_value is None:
            graph.inputs.append(graph.initializers.pop(name))
            parameters[name] = value
    onnxscript.optimizer.fold_constants(model)
    onnxscript.optimizer.remove_unused_nodes(model)
    return Plan(formats, logit_ids, parameters)
