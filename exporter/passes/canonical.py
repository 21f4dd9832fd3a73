"""Parameters become named values without data, constants are folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnxscript.optimizer

from .plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    import torch

    from .plan import Formats


def canonicalise(
    model: ir.Model, formats: Formats, logit_ids: tuple[int, ...] | None, buffers: Mapping[str, torch.Tensor]
) -> Plan:
    """Turns parameters (initializers without data) into known values and folds constant subgraphs."""
    graph = model.graph
    parameters = {}
    inputs = list(graph.inputs)
    for name, value in list(graph.initializers.items()):
        if value.const_value is None:
            graph.inputs.append(graph.initializers.pop(name))
            parameters[name] = value
    onnxscript.optimizer.fold_constants(model)
    onnxscript.optimizer.remove_unused_nodes(model)
    graph.inputs.clear()
    graph.inputs.extend(inputs)
    return Plan(formats, logit_ids, parameters, buffers=buffers)
