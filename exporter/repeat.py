"""Traces one layer of each kind: nodes stand in for the others, and become copies of the nodes of that one.

The model's own code runs whole, so that what each layer is called with is what it says; only layers that
`layer_kinds` has found to be the same computation are not gone through again.
"""

from __future__ import annotations

import ast
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from .contract import DOMAIN
from .traced_operator import traced_operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .layer_kinds import LayerKinds

_SCOPES = "pkg.torch.onnx.name_scopes"
_ROOT = "model."  # what the traced module calls the model
_ENTER, _LEAVE, _STAND_IN = "EnterLayer", "LeaveLayer", "Layer"
_MOST_TENSORS = 16  # that a layer is called with
_TYPES = [f"tensor({name})" for name in ("float", "double", "float16", "bfloat16", "int32", "int64", "bool")]


@torch.library.custom_op("pilotfish::enter_layer", mutates_args=())
def _enter(x: torch.Tensor, layer: int, place: int) -> torch.Tensor:
    raise NotImplementedError("only traced, never run")


@torch.library.custom_op("pilotfish::leave_layer", mutates_args=())
def _leave(x: torch.Tensor, layer: int) -> torch.Tensor:
    raise NotImplementedError("only traced, never run")


@torch.library.custom_op("pilotfish::layer", mutates_args=())
def _stand_in(tensors: list[torch.Tensor], layer: int) -> torch.Tensor:
    raise NotImplementedError("only traced, never run")


@_enter.register_fake
@_leave.register_fake
def _like(x: torch.Tensor, *_: int) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


@_stand_in.register_fake
def _(tensors: list[torch.Tensor], *_: int) -> torch.Tensor:
    first = tensors[0]
    return torch.empty_strided(first.shape, first.stride(), dtype=first.dtype, device=first.device)


_ENTER_OP = traced_operator(_ENTER, _TYPES, ("x0",), layer="INT", place="INT")
_LEAVE_OP = traced_operator(_LEAVE, _TYPES, ("x0",), layer="INT")
_STAND_IN_OP = traced_operator(
    _STAND_IN, _TYPES, ("x0",), [f"x{place}" for place in range(1, _MOST_TENSORS)], layer="INT"
)

TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.pilotfish.enter_layer.default: lambda x, layer, place: _ENTER_OP(x, layer=layer, place=place),
    torch.ops.pilotfish.leave_layer.default: lambda x, layer: _LEAVE_OP(x, layer=layer),
    torch.ops.pilotfish.layer.default: lambda tensors, layer: _STAND_IN_OP(*tensors, layer=layer),
}


@contextmanager
def stand_ins(kinds: LayerKinds) -> Iterator[None]:
    """While it lasts, layers that repeat others are one operator each, and those others are between two of them."""
    repeated = kinds.repeated
    changed = [index for index, first in enumerate(kinds.first) if index != first or index in repeated]
    for index in changed:
        layer = kinds.layers[index]
        replaced = _marked(layer.forward, index) if index in repeated else _replaced(kinds, index)
        vars(layer)["forward"] = replaced
    try:
        yield
    finally:
        for index in changed:
            del vars(kinds.layers[index])["forward"]


def _marked(forward: Callable[..., Any], index: int) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        leaves, spec = tree_flatten((arguments, options))
        places = iter(range(len(leaves)))
        leaves = [
            torch.ops.pilotfish.enter_layer(leaf, index, next(places)) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in leaves
        ]
        arguments, options = tree_unflatten(leaves, spec)
        result = forward(*arguments, **options)
        return tree_map_only(torch.Tensor, lambda leaf: torch.ops.pilotfish.leave_layer(leaf, index), result)

    return run


def _replaced(kinds: LayerKinds, index: int) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        tensors = [leaf for leaf in tree_flatten((arguments, options))[0] if isinstance(leaf, torch.Tensor)]
        found = torch.ops.pilotfish.layer(tensors, index)
        spec, leaves = kinds.result
        return tree_unflatten([found if leaf is ... else leaf for leaf in leaves], spec)

    return run


def repeat_layers(graph: ir.Graph, kinds: LayerKinds) -> None:
    """Puts copies of the first layer's nodes where a node stands in for a layer, and takes the marks away."""
    traced = {first: _Layer(graph, first) for first in kinds.repeated}
    for node in list(graph):
        if node.domain == DOMAIN and node.op_type == _STAND_IN:
            index = node.attributes["layer"].as_int()
            first = kinds.first[index]
            names = (f"{_ROOT}{kinds.prefix}.{first}", f"{_ROOT}{kinds.prefix}.{index}")
            result = _Copy(graph, names, index).of(traced[first], node)
            _remove(graph, node, result)
    for node in list(graph):
        if node.domain == DOMAIN and node.op_type in (_ENTER, _LEAVE):
            _remove(graph, node, node.inputs[0])


def _remove(graph: ir.Graph, node: ir.Node, value: ir.Value | None) -> None:
    """Takes a node away whose readers get another value."""
    if value is None:
        raise ValueError(f"{node.op_type} has no input")
    ir.convenience.replace_all_uses_with(node.outputs[0], value, replace_graph_outputs=True)
    graph.remove(node, safe=True)


class _Layer:
    """The nodes of a traced layer, in order."""

    def __init__(self, graph: ir.Graph, index: int) -> None:
        nodes = list(graph)
        marks = [
            place
            for place, node in enumerate(nodes)
            if node.op_type in (_ENTER, _LEAVE) and node.attributes["layer"].as_int() == index
        ]
        self.nodes = [node for node in nodes[marks[0] : marks[-1]] if node.op_type != _ENTER]
        self.inputs = {
            node.attributes["place"].as_int(): node.outputs[0]
            for node in nodes
            if node.op_type == _ENTER and node.attributes["layer"].as_int() == index
        }
        self.result = nodes[marks[-1]].inputs[0]


class _Copy:
    """Nodes of one layer with the inputs, parameters and names of another."""

    def __init__(self, graph: ir.Graph, names: tuple[str, str], index: int) -> None:
        self._graph, self._index = graph, index
        self._old, self._new = names
        self._values: dict[ir.Value, ir.Value] = {}

    def of(self, layer: _Layer, place: ir.Node) -> ir.Value | None:
        """Puts them before `place`, whose inputs they read, and returns their result."""
        for number, value in layer.inputs.items():
            given = place.inputs[number]
            if given is not None:
                self._values[value] = given
        for node in layer.nodes:
            if node.op_type != "Constant":  # which the layers share
                self._graph.insert_before(place, self._node(node))
        return None if layer.result is None else self._value(layer.result)

    def _node(self, node: ir.Node) -> ir.Node:
        inputs = [None if value is None else self._value(value) for value in node.inputs]
        attributes = dict(node.attributes)
        if node.domain == DOMAIN and "layer" in attributes:
            attributes["layer"] = ir.AttrInt64("layer", self._index)
        copied = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            attributes.values(),
            num_outputs=len(node.outputs),
            version=node.version,
            name=self._unique(node.name),
            metadata_props=self._metadata(node),
        )
        for old, new in zip(node.outputs, copied.outputs, strict=True):
            new.name, new.type, new.shape = self._unique(old.name), old.type, old.shape
            self._values[old] = new
        return copied

    def _value(self, value: ir.Value) -> ir.Value:
        """What a value is in the copy: the same one, where the layers share it."""
        if value not in self._values and value.name is not None and value.name.startswith(f"{self._old}."):
            self._values[value] = self._parameter(value, self._new + value.name.removeprefix(self._old))
        return self._values.get(value, value)

    def _parameter(self, value: ir.Value, name: str) -> ir.Value:
        known = self._graph.initializers.get(name)
        if known is None:
            known = ir.Value(name=name, type=value.type, shape=value.shape)
            self._graph.initializers[name] = known
        return known

    def _unique(self, name: str | None) -> str | None:
        return None if name is None else f"{name}.layer{self._index}"

    def _metadata(self, node: ir.Node) -> dict[str, str]:
        """The modules that a node was traced from, which messages name, are those of the other layer."""
        scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
        named = [
            self._new + item.removeprefix(self._old) if item == self._old or item.startswith(f"{self._old}.") else item
            for item in scopes
        ]
        return dict(node.metadata_props) | {_SCOPES: repr(named)}
