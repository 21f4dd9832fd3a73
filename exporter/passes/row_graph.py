"""The nodes of a lowered graph as they are made: values are [num_tokens, ...], constants are kept apart.

Knows nothing about the traced graph but the node that is being lowered, for messages.
"""

from __future__ import annotations

import math
from enum import IntEnum
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from .match import static_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from .plan import Plan

TOKENS = "num_tokens"
_BOOL = ir.DataType.BOOL
_SAME_TYPE = ("Concat", "Expand", "Gather", "Reshape", "Slice", "Split", "Transpose")  # as their first input
_CONDITIONS = ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or")


class Kind(IntEnum):
    """What a traced value depends on: the last of these."""

    CONSTANT = 0
    SIZE = 1
    POSITION = 2
    ROW = 3


def core_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Axes behind the tokens' without those of one element; the last one stays."""
    last = len(shape) - 1
    return tuple(size for axis, size in enumerate(shape) if axis > 0 and (size != 1 or axis == last))


def row_dims(value: ir.Value) -> tuple[int, ...]:
    """Axes of a lowered value behind the tokens'."""
    return tuple(size for size in static_shape(value)[1:] if size is not None)


class RowGraph:
    """Collects nodes in the order in which they can run."""

    def __init__(self, plan: Plan, shared: Mapping[str, ir.Value]) -> None:
        self.nodes: list[ir.Node] = []
        self.plan = plan
        self.shared = shared
        self.origin: ir.Node = ir.node("Identity", [])

    def place(self, origin: ir.Node) -> None:
        """Nodes that are made from here on belong to the module that this one was traced from."""
        self.origin = origin

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        dims: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
    ) -> ir.Value:
        """A node with one result, [num_tokens, *dims]."""
        return self.ops(op_type, inputs, [dims], attributes, domain=domain)[0]

    def ops(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        dims: Sequence[Sequence[int]],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
    ) -> Sequence[ir.Value]:
        """A node with as many results as there are dims."""
        node = ir.node(op_type, inputs, dict(attributes or {}), domain=domain, num_outputs=len(dims))
        node.metadata_props.update(self.origin.metadata_props)
        is_condition = op_type in _CONDITIONS or (op_type in _SAME_TYPE and getattr(inputs[0], "dtype", None) == _BOOL)
        for output, sizes in zip(node.outputs, dims, strict=True):
            output.shape = ir.Shape([TOKENS, *sizes])
            output.type = ir.TensorType(_BOOL if is_condition else ir.DataType.FLOAT)
        self.nodes.append(node)
        return node.outputs

    def reshape(self, value: ir.Value, dims: Sequence[int]) -> ir.Value:
        """The same elements in other axes."""
        while row_dims(value) != tuple(dims):
            node = value.producer()
            if node is None or node.op_type != "Reshape" or node.inputs[0] is None:
                return self.op("Reshape", [value, self.plan.integers([0, *dims])], dims)
            value = node.inputs[0]
        return value

    def parameter(self, value: ir.Value) -> ir.Value:
        """A parameter that a pass will store."""
        return self.plan.pending(str(value.name), static_shape(value))

    def derived(self, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        """What is computed of parameters, which a pass will store."""
        below = self._parameter_below(value)
        names = (f"{below}.computed.{number}" for number in count())
        name = next(name for name in names if self.plan.derived.setdefault(name, value) is value)
        return self.plan.pending(name, shape)

    def _parameter_below(self, value: ir.Value) -> str:
        """Name of the first parameter that a value is computed of, so that the stored tensor can be named."""
        pending = [value]
        while pending:
            item = pending.pop(0)
            if item.name in self.plan.parameters:
                return str(item.name).rpartition(".")[0]
            node = item.producer()
            pending += [] if node is None else [found for found in node.inputs if found is not None]
        return "constant"

    def number(self, value: torch.Tensor) -> ir.Value:
        """A number in the graph's own file."""
        return self.plan.constant(value.numpy())

    def condition(self, stored: ir.Value) -> ir.Value:
        """What is true where stored numbers, which are 0 or 1, are 1."""
        half = self.plan.constant(np.asarray(0.5, dtype=np.float32))
        result = self.op("Greater", [stored, half], row_dims(stored))
        result.shape = stored.shape
        return result

    def table(self, value: ir.Value, dims: tuple[int, ...]) -> ir.Value:
        """What depends on positions alone: rows of a table."""
        width = math.prod(dims)
        table = self.plan.table(value, width)
        rows = self.op("Gather", [table, self.shared["position_ids"]], (width,), {"axis": 0})
        return self.reshape(rows, dims)
