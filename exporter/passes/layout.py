"""Which rows of linear layers a value consists of, where reshapes, slices and the like are all that is between.

The nodes run on row numbers in place of activations, so that every spelling of a head split or of a fused projection
is understood the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .evaluate import Evaluator
from .match import constant
from .row_graph import row_dims

if TYPE_CHECKING:
    import onnx_ir as ir

_MOVES = ("Reshape", "Transpose", "Slice", "Split", "Gather", "Concat", "Expand")
_SCALES = ("Mul", "Div")  # where one factor is a number
_MOST_ROWS = 1 << 32  # of one projection


@dataclass(slots=True)
class Rows:
    """The rows of `projections`, one after the other, that a value's elements are, times `factor`."""

    projections: list[ir.Node]
    rows: torch.Tensor  # as the value's axes; in all projections' rows, one after the other
    factor: float

    @property
    def x(self) -> ir.Value | None:
        """What all of them are projections of; None: of several values."""
        values = {projection.inputs[0] for projection in self.projections}
        return values.pop() if len(values) == 1 else None


class _Walk:
    """Numbers of rows through the nodes between projections and a value."""

    def __init__(self) -> None:
        self.projections: list[ir.Node] = []
        self.failed = False
        self.numbers = Evaluator(self._numbers_of)
        self.factors = Evaluator(self._ones_of)

    def _numbers_of(self, value: ir.Value) -> torch.Tensor | None:
        """Row numbers of a projection; those of the other factor, where a value is multiplied with a number."""
        node = value.producer()
        if node is None or node.op_type in _MOVES:
            return None
        if node.op_type in _SCALES:
            scaled = [item for item in node.inputs if item is not None and constant(item) is None]
            return self.numbers(scaled[0]) if len(scaled) == 1 else self._fail(value)
        if node.op_type != "Projection":
            return self._fail(value)
        if node not in self.projections:
            self.projections.append(node)
        numbers = torch.arange(row_dims(value)[0]) + self.projections.index(node) * _MOST_ROWS
        return numbers[None]

    @staticmethod
    def _ones_of(value: ir.Value) -> torch.Tensor | None:
        node = value.producer()
        is_one = node is not None and node.op_type == "Projection"
        return torch.ones((1, *row_dims(value)), dtype=torch.float64) if is_one else None

    def _fail(self, value: ir.Value) -> torch.Tensor:
        self.failed = True
        return torch.zeros((1, *row_dims(value)), dtype=torch.int64)


def rows_of(value: ir.Value) -> Rows | None:
    """The rows that a value [num_tokens, ...] consists of; None: it is computed in another way."""
    walk = _Walk()
    numbers = walk.numbers(value)[0]
    if walk.failed or not walk.projections:
        return None
    factors = walk.factors(value)
    least, most = float(factors.min()), float(factors.max())
    return Rows(walk.projections, _continued(numbers, walk.projections), least) if least == most else None


def _continued(numbers: torch.Tensor, projections: list[ir.Node]) -> torch.Tensor:
    """Numbers within each projection -> numbers in all of them, one after the other."""
    sizes = torch.tensor([0, *(row_dims(item.outputs[0])[0] for item in projections)])
    first = sizes.cumsum(0)
    return first[numbers // _MOST_ROWS] + numbers % _MOST_ROWS


def joined(parts: list[Rows]) -> tuple[list[ir.Node], list[int]]:
    """Every projection of the parts once, and the rows of the parts among them, one part after the other."""
    projections = list(dict.fromkeys(item for part in parts for item in part.projections))
    starts, start = {}, 0
    for item in projections:
        starts[item] = start
        start += row_dims(item.outputs[0])[0]
    rows: list[int] = []
    for part in parts:
        own, moved = 0, part.rows.reshape(-1).clone()
        for item in part.projections:
            size = row_dims(item.outputs[0])[0]
            within = (part.rows.reshape(-1) >= own) & (part.rows.reshape(-1) < own + size)
            moved[within] = part.rows.reshape(-1)[within] - own + starts[item]
            own += size
        rows += moved.tolist()
    return projections, rows


def in_order(rows: list[int], projections: list[ir.Node]) -> tuple[int, ...] | None:
    """None where the rows are all rows of the projections as they come."""
    total = sum(row_dims(item.outputs[0])[0] for item in projections)
    return None if rows == list(range(total)) else tuple(rows)
