"""Pass 3: a GELU that is written out becomes one Gelu node, found by what its arithmetic computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import torch

from pilotfish.exporter.errors import UnsupportedModelError

from .evaluate import Evaluator
from .match import constant, producer, replace
from .row_graph import row_dims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "Neg", "Tanh", "Erf")
_MOST_VALUES = 16  # that a written-out activation is made of
_POINTS = torch.linspace(-8, 8, 331, dtype=torch.float64)
_TOLERANCE = 1e-6
_KINDS = ("none", "tanh")  # of Gelu's attribute `approximate`


def fuse_activations(model: ir.Model) -> None:
    """0.5 x (1 + tanh(0.79788456 (x + 0.044715 x^3))), or with erf -> Gelu(x)."""
    for node in reversed(list(model.graph)):
        if node.op_type != "Mul" or node.graph is None:
            continue
        above = list(_above(node))
        if not any(producer(value, kind) for value in above for kind in ("Tanh", "Erf")):
            continue
        found = _gelu(node.outputs[0], above)
        if found is not None:
            x, kind = found
            replace(node, ir.node("Gelu", [x], {"approximate": kind}))


def _above(node: ir.Node) -> Iterator[ir.Value]:
    """Values that elementwise arithmetic before a node's result reads, the nearest first."""
    pending = [value for value in node.inputs if value is not None]
    seen: set[ir.Value] = set()
    while pending and len(seen) < _MOST_VALUES:
        value = pending.pop(0)
        if value in seen or constant(value) is not None:
            continue
        seen.add(value)
        yield value
        above = value.producer()
        if above is not None and above.op_type in _ARITHMETIC:
            pending += [item for item in above.inputs if item is not None]


def _gelu(result: ir.Value, above: list[ir.Value]) -> tuple[ir.Value, str] | None:
    """What a result is the GELU of, and which of the two."""
    for x in above:
        if row_dims(x) != row_dims(result):
            continue
        try:
            found = Evaluator(_points_for(x))(result)
        except UnsupportedModelError:
            continue
        for kind in _KINDS:
            expected = torch.nn.functional.gelu(_POINTS, approximate=kind)
            if found.shape == expected.shape and torch.allclose(found, expected, rtol=0, atol=_TOLERANCE):
                return x, kind
    return None


def _points_for(x: ir.Value) -> Callable[[ir.Value], torch.Tensor | None]:
    def given(value: ir.Value) -> torch.Tensor | None:
        if value is x:
            return _POINTS
        numbers = constant(value)
        return torch.tensor(numbers[0], dtype=torch.float64) if numbers is not None and len(numbers) == 1 else None

    return given
