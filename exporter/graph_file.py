"""A fused graph as a file: its stored tensors become initializers in the external weights file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from .data_types import DATA_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .passes import Plan
    from .weights_file import StoredTensor


def write_graph(model: ir.Model, plan: Plan, tensors: Mapping[str, Iterable[StoredTensor]], path: Path) -> None:
    """Writes `path`; tensors, by the file beside it that they are in, become references to their places there.

    Inputs that may be left out keep their defaults in the graph's own file, as do numbers and sizes.
    """
    graph = model.graph
    kept = [value for value in graph.initializers.values() if value.is_graph_input()] + plan.constants()
    graph.initializers.clear()
    for value in kept:
        graph.register_initializer(value)
    for weights_file, tensor in ((file, tensor) for file, stored in tensors.items() for tensor in stored):
        value = plan.values[tensor.name]
        value.shape = ir.Shape(tensor.shape)
        value.const_value = ir.ExternalTensor(
            weights_file,
            tensor.offset,
            tensor.bytes,
            DATA_TYPES[tensor.dtype],
            shape=ir.Shape(tensor.shape),
            name=tensor.name,
            base_dir=path.parent,
        )
        graph.register_initializer(value)
    for index, node in enumerate(graph):
        node.metadata_props.clear()
        node.doc_string = None
        node.name = f"{node.op_type}.{index}"
    for node in graph:
        for output in node.outputs:
            output.metadata_props.clear()
            if not output.is_graph_output():
                output.name = f"{node.name}.out" + (f".{output.index()}" if len(node.outputs) > 1 else "")
    ir.save(model, path)
