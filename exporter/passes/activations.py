"""Pass 3: a GELU that is written out becomes one Gelu node, found by what its arithmetic computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import torch

from pilotfish.exporter.errors import UnsupportedModelError

from .evaluate import Evaluator
from .match import constant, producer, replace, values_above
from .row_graph import row_dims

if TYPE_CHECKING:
    from collections.abc import Callable

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
        above = values_above(node.outputs[0], lambda item: item.op_type in _ARITHMETIC, _MOST_VALUES)
        if not any(producer(value, kind) for value in above for kind in ("Tanh", "Erf")):
            continue
        found = _gelu(node.outputs[0], above)
        if found is not None:
            x, kind = found
            replace(node, ir.node("Gelu", [x], {"approximate": kind}))


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
