"""Small questions about a traced graph that the passes share, and the refusal they raise."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

_SCOPES = "pkg.torch.onnx.name_scopes"
_LAYER = re.compile(r"\.(\d+)\.")


def producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that makes `value` if it is an `op_type`."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == op_type else None


def input_of(node: ir.Node, index: int) -> ir.Value:
    """Input `index`, which the caller knows to be there."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        raise refuse(node, f"its {node.op_type} has no input {index}")
    return value


def scope(node: ir.Node) -> str:
    """The torch module a node was traced from, for messages: 'model.layers.3.mlp'."""
    scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
    modules = [name for name in scopes[:-1] if name]
    return modules[-1].removeprefix("model.") if modules else "the model"


def describe(value: ir.Value) -> str:
    """What makes a value, for messages."""
    node = value.producer()
    return f"input {value.name}" if node is None else f"{node.op_type} in {scope(node)}"


def refuse(node: ir.Node, reason: str) -> UnsupportedModelError:
    """The error that says which layer a graph pattern fails in, and why."""
    return UnsupportedModelError(f"{scope(node)}: {reason}")


def layer_index(parameter: str) -> int | None:
    """Layer number inside a parameter's name: 'model.layers.3.mlp.up_proj.weight' -> 3."""
    found = _LAYER.search(parameter)
    return int(found[1]) if found else None


def constant(value: ir.Value | None) -> list[float] | None:
    """Elements of a constant value, None if it is computed."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else [float(item) for item in tensor.numpy().reshape(-1)]


def values_above(result: ir.Value, is_part: Callable[[ir.Node], bool], most: int) -> list[ir.Value]:
    """Values that a result is made of by nodes that are part of it, the nearest first; constants are none."""
    found: dict[ir.Value, None] = {}
    pending = [result]
    while pending and len(found) <= most:
        value = pending.pop(0)
        if value in found or constant(value) is not None:
            continue
        found[value] = None
        node = value.producer()
        if node is not None and is_part(node):
            pending += [item for item in node.inputs if item is not None]
    return list(found)[1:]


def static_shape(value: ir.Value) -> tuple[int | None, ...]:
    """Axes of a value, None where they are dynamic or unknown; () without a shape."""
    return tuple(axis if isinstance(axis, int) else None for axis in value.shape or ())


def insert_before(place: ir.Node, new: ir.Node) -> None:
    """Puts `new` before `place`, of whose module it becomes a part."""
    if place.graph is None:
        raise refuse(place, f"its {place.op_type} is not in the graph any more")
    place.graph.insert_before(place, new)
    new.metadata_props.update(place.metadata_props)


def replace(old: ir.Node, new: ir.Node) -> None:
    """Puts `new` where `old` was and rewires its one output; dead inputs are left to `sweep`."""
    insert_before(old, new)
    result, output = new.outputs[0], old.outputs[0]
    result.type, result.shape = output.type, output.shape
    ir.convenience.replace_all_uses_with(output, result, replace_graph_outputs=True)
    if old.graph is not None:
        old.graph.remove(old, safe=True)


def sweep(graph: ir.Graph) -> None:
    """Removes nodes whose results nobody reads."""
    for node in reversed(list(graph)):
        if not any(output.uses() or output.is_graph_output() for output in node.outputs):
            graph.remove(node, safe=True)
