"""Of pass 5: finds out by trying whether heads are rotated before attention, however that is written.

The nodes between a value without position and attention run on random numbers; if they do what the operator does with
one of its ways to rotate, it does so from then on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pilotfish.exporter.errors import UnsupportedModelError

from .evaluate import Evaluator
from .match import constant, values_above
from .row_graph import row_dims

if TYPE_CHECKING:
    import onnx_ir as ir

    from .plan import Plan

_LINEAR = ("Add", "Sub", "Mul", "Neg", "Slice", "Split", "Concat", "Reshape", "Transpose", "Gather", "Expand")
_MOST_VALUES = 63  # that a rotation is written with
_NUM_ROWS = 3
_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Rotary:
    """How the heads `x` [num_tokens, num_heads, head_dim] are rotated."""

    x: ir.Value
    cos: str  # stored tables
    sin: str
    rotary_dim: int
    interleaved: bool

    @property
    def way(self) -> tuple[str, str, int, bool]:
        """What query and key must have in common."""
        return self.cos, self.sin, self.rotary_dim, self.interleaved


def rotary_of(heads: ir.Value, plan: Plan) -> Rotary | None:
    """The rotation that makes `heads`; None: there is none, or not one that the operator has."""
    above = values_above(heads, lambda node: node.op_type in _LINEAR and not _is_lookup(node), _MOST_VALUES)
    tables = [value for value in above if table_of(value, plan) is not None]
    if len(tables) != 2:  # noqa: PLR2004 - cosine and sine
        return None
    head_dim = row_dims(heads)[-1]
    for x in (value for value in above if value not in tables and _is_like(value, heads)):
        for cos, sin in (tables, tables[::-1]):
            for width, interleaved, repeated in _candidates(row_dims(cos)[-1], head_dim):
                if _rotates_so(heads, (x, cos, sin), width, interleaved=interleaved, repeated=repeated):
                    names = [_half(plan, str(table_of(item, plan)), repeated, interleaved) for item in (cos, sin)]
                    return Rotary(x, names[0], names[1], width, interleaved)
    return None


def _is_like(value: ir.Value, heads: ir.Value) -> bool:
    dims, wanted = row_dims(value), row_dims(heads)
    return dims[-1:] == wanted[-1:] and math.prod(dims) == math.prod(wanted)


def _is_lookup(node: ir.Node | None) -> bool:
    """Whether a node takes rows of a table by position."""
    return node is not None and node.op_type == "Gather" and getattr(node.inputs[1], "name", "") == "position_ids"


def table_of(leaf: ir.Value, plan: Plan) -> str | None:
    """Name of the table of which a value is the row of each position; None: it is something else."""
    node = leaf.producer()
    name = None if node is None or not _is_lookup(node) else str(getattr(node.inputs[0], "name", ""))
    return name if name in plan.tables else None


def _candidates(columns: int, head_dim: int) -> list[tuple[int, bool, bool]]:
    """Rotary dimension, whether pairs rotate, and whether the table repeats each angle."""
    found = []
    for width, repeated in ((columns, True), (2 * columns, False)):
        if width % 2 == 0 and width <= head_dim:
            found += [(width, False, repeated), (width, True, repeated)]
    return found


def _kept_columns(width: int, *, interleaved: bool) -> tuple[int, ...]:
    """Columns of a table that repeats each angle that have each once."""
    return tuple(range(0, width, 2)) if interleaved else tuple(range(width // 2))


def _rotates_so(
    heads: ir.Value, leaves: tuple[ir.Value, ir.Value, ir.Value], width: int, *, interleaved: bool, repeated: bool
) -> bool:
    x, cos, sin = leaves
    generator = torch.Generator().manual_seed(1)
    values = torch.randn((_NUM_ROWS, *row_dims(x)), generator=generator, dtype=torch.float64)
    angles = [torch.randn((_NUM_ROWS, width // 2), generator=generator, dtype=torch.float64) for _ in range(2)]
    tables = [_repeat(item, interleaved=interleaved) if repeated else item for item in angles]
    given = {x: values, cos: tables[0], sin: tables[1]}

    def known(value: ir.Value) -> torch.Tensor | None:
        numbers = constant(value)
        if value in given or numbers is None or value.const_value is None:
            return given.get(value)
        tensor = torch.from_numpy(value.const_value.numpy().copy())
        return tensor.double() if tensor.is_floating_point() else tensor

    try:
        found = Evaluator(known)(heads)
    except UnsupportedModelError:
        return False
    expected = _rotated(values.reshape(found.shape), angles[0], angles[1], width, interleaved=interleaved)
    return torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)


def _repeat(angles: torch.Tensor, *, interleaved: bool) -> torch.Tensor:
    return angles.repeat_interleave(2, dim=-1) if interleaved else torch.cat((angles, angles), dim=-1)


def _rotated(
    heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, width: int, *, interleaved: bool
) -> torch.Tensor:
    """What PagedAttention does with [num_tokens, num_heads, head_dim]."""
    result = heads.clone()
    half = width // 2
    firsts, seconds = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, half), slice(half, width))
    first, second = heads[..., firsts], heads[..., seconds]
    result[..., firsts] = first * cos[:, None] - second * sin[:, None]
    result[..., seconds] = second * cos[:, None] + first * sin[:, None]
    return result


def _half(plan: Plan, table: str, repeated: bool, interleaved: bool) -> str:  # noqa: FBT001
    """Stored name of the table with each angle once."""
    value = plan.values[table]
    columns = int(str(value.shape[1])) if value.shape is not None else 0
    kept = _kept_columns(columns, interleaved=interleaved) if repeated else tuple(range(columns))
    return plan.half_table(table, kept)
