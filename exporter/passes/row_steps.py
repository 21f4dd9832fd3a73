"""Pass 13: all row-wise nodes between two rows of linear layers or attentions become one RowSteps node.

A node is put as late as its readers allow, so that one program does what is on the way to the same readers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter.contract import DOMAIN, MOST_ROW_OUTPUTS

from .match import constant, static_shape, sweep
from .row_graph import TOKENS, row_dims
from .row_nodes import MOVES, RULES, RowNode
from .row_program import NotARowStepError, RowProgram, View, number, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan


class _RefusedError(Exception):
    def __init__(self, node: ir.Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node


def join_row_nodes(model: ir.Model, plan: Plan) -> None:
    """Groups of row-wise nodes -> RowSteps; a node that no program can express stays, and groups end there."""
    graph = model.graph
    left: set[ir.Node] = set()
    while True:
        layout = _Layout(graph, left)
        groups = [_Group(layout, place, nodes) for place, nodes in layout.groups()]
        try:
            for group in groups:
                group.compile()
            break
        except _RefusedError as refused:
            left.add(refused.node)
    if not groups:
        return
    made: dict[ir.Value, ir.Value] = {}
    for group in groups:
        graph.append(group.node(made))
    for old, new in made.items():
        ir.convenience.replace_all_uses_with(old, _in_axes(graph, new, old, plan), replace_graph_outputs=True)
    graph.sort()
    sweep(graph)


def _in_axes(graph: ir.Graph, flat: ir.Value, old: ir.Value, plan: Plan) -> ir.Value:
    """A row as the readers that stay want it."""
    dims = row_dims(old)
    if dims == row_dims(flat):
        return flat
    node = ir.node("Reshape", [flat, plan.integers([0, *dims])])
    node.outputs[0].shape, node.outputs[0].type = old.shape, old.type
    graph.append(node)
    return node.outputs[0]


class _Layout:
    """Which nodes are row-wise, and the place of each: how many other nodes are one after the other before it."""

    def __init__(self, graph: ir.Graph, left: set[ir.Node]) -> None:
        self._left = left
        self._order = list(graph)
        self.members = {node for node in self._order if self._is_member(node)}
        self._levels: dict[ir.Node, int] = {}
        self.free: set[ir.Node] = set()  # of these each program makes what it reads itself
        constants: set[ir.Node] = set()
        for node in self._order:
            above = [value.producer() for value in node.inputs if value is not None]
            level = max((self._levels[item] for item in above if item is not None), default=0)
            self._levels[node] = level + (node not in self.members)
            if node in self.members and all(item is None or item in constants for item in above):
                constants.add(node)
            if node in constants or (node in self.members and node.op_type in MOVES):
                self.free.add(node)
        self.places: dict[ir.Node, int] = {}
        for node in reversed(self._order):
            if node in self.members:
                self.places[node] = min(self._latest(node), default=self._levels[node])

    def _is_member(self, node: ir.Node) -> bool:
        if node.domain or node.op_type not in RULES or node in self._left:
            return False
        return node.op_type != "Gather" or constant(node.inputs[1]) is not None

    def _latest(self, node: ir.Node) -> Iterator[int]:
        for value in node.outputs:
            if value.is_graph_output():
                yield self._levels[node]
            for use in value.uses():
                yield self.places[use.node] if use.node in self.members else self._levels[use.node] - 1

    def groups(self) -> list[tuple[int, list[ir.Node]]]:
        """The nodes of each place whose results a program makes, first places first."""
        found: dict[int, list[ir.Node]] = {}
        for node in self._order:
            if node in self.members and (node not in self.free or self.is_wanted(node)):
                found.setdefault(self.places[node], []).append(node)
        return [(place, found[place]) for place in sorted(found) if any(item not in self.free for item in found[place])]

    def is_wanted(self, node: ir.Node) -> bool:
        """Whether what is no member of a group reads a result."""
        return any(self.leaves(value) for value in node.outputs)

    def leaves(self, value: ir.Value) -> bool:
        """The same of one result."""
        return value.is_graph_output() or any(use.node not in self.members for use in value.uses())

    def is_read_elsewhere(self, value: ir.Value, place: int) -> bool:
        """Whether a program of another place reads a value, or what is no member of a group."""
        return self.leaves(value) or any(found != place for found in self._readers(value))

    def _readers(self, value: ir.Value) -> Iterator[int]:
        """Places of the programs that read a value, perhaps by way of free nodes."""
        for use in value.uses():
            reader = use.node
            if reader not in self.members:
                continue
            if reader not in self.free or self.is_wanted(reader):
                yield self.places[reader]
            if reader in self.free:
                for result in reader.outputs:
                    yield from self._readers(result)


@dataclass(slots=True)
class _Group:
    """The row-wise nodes of one place, and the program that they become."""

    layout: _Layout
    place: int
    nodes: list[ir.Node]
    program: RowProgram = field(default_factory=RowProgram)
    outputs: dict[ir.Value, int] = field(default_factory=dict)
    _views: dict[ir.Value, View] = field(default_factory=dict)

    def compile(self) -> None:
        """Writes the program."""
        for node in self.nodes:
            self._run(node)
        for node in self.nodes:
            for value in node.outputs:
                if self.layout.leaves(value) or (
                    node not in self.layout.free and self.layout.is_read_elsewhere(value, self.place)
                ):
                    self._add_output(node, value)
        if not self.program.rows or len(self.outputs) > MOST_ROW_OUTPUTS:
            raise _RefusedError(self.nodes[-1], f"a program has no rows, or more than {MOST_ROW_OUTPUTS} results")

    def _add_output(self, node: ir.Node, value: ir.Value) -> None:
        if value.dtype == ir.DataType.BOOL:
            raise _RefusedError(node, "its result is a condition")
        try:
            step = self.program.as_output(self._views[value])
            if step in self.outputs.values():
                self.program.copied(self._views[value])
                step = self.program.num_steps - 1
        except NotARowStepError as error:
            raise _RefusedError(node, str(error)) from error
        self.outputs[value] = step

    def _run(self, node: ir.Node) -> None:
        try:
            found = RULES[node.op_type](RowNode(node, self.program, self._view))
        except NotARowStepError as error:
            raise _RefusedError(node, str(error)) from error
        self._views.update(zip(node.outputs, found, strict=True))

    def _view(self, value: ir.Value) -> View:
        if value not in self._views:
            self._views[value] = self._given(value)
        return self._views[value]

    def _given(self, value: ir.Value) -> View:
        maker, numbers = value.producer(), constant(value)
        if numbers is not None:
            if len(numbers) != 1:
                raise NotARowStepError("it reads several numbers of the graph's own file")
            return number(numbers[0])
        if maker is not None and maker in self.layout.free:
            self._run(maker)
            return self._views[value]
        if value.dtype == ir.DataType.BOOL or value.shape is None:
            raise NotARowStepError("it reads what is no row of f32")
        vector = tuple(size for size in static_shape(value) if size is not None)
        dims = vector if maker is None else row_dims(value)
        return self.program.input(value, dims, is_vector=maker is None)

    def node(self, made: dict[ir.Value, ir.Value]) -> ir.Node:
        """The node of the program; `made` has what earlier programs make in place of a value, and gets its own."""
        inputs = [made.get(value, value) for value in self.program.inputs()]
        attributes = self.program.attributes(list(self.outputs.values()))
        node = ir.node("RowSteps", inputs, attributes, domain=DOMAIN, num_outputs=len(self.outputs))
        node.metadata_props.update(self.nodes[0].metadata_props)
        for value, new in zip(self.outputs, node.outputs, strict=True):
            new.shape = ir.Shape([TOKENS, whole(0, row_dims(value)).numbers.size])
            new.type = ir.TensorType(ir.DataType.FLOAT)
            made[value] = new
        return node
