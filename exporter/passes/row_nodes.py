"""How each row-wise node of a lowered graph becomes steps of a RowProgram, one function a kind of node."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from .match import constant, input_of
from .row_graph import row_dims
from .row_program import NotARowStepError, View, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .row_program import RowProgram

_FUNCTIONS = {
    **{name: name.lower() for name in ("Abs", "Exp", "Log", "Sqrt", "Sigmoid", "Tanh", "Erf")},
    **{name: name.lower() for name in ("Add", "Sub", "Mul", "Div", "Less")},
}
_POWERS = {2.0: 2, 3.0: 3}


class RowNode:
    """A node beside the program that it becomes a part of and the views that it reads."""

    def __init__(self, node: ir.Node, program: RowProgram, view: Callable[[ir.Value], View]) -> None:
        self.node, self.program = node, program
        self._view = view

    def view(self, index: int) -> View:
        """Of an input."""
        return self._view(input_of(self.node, index))

    def views(self) -> list[View]:
        """Of all inputs."""
        return [self._view(value) for value in self.node.inputs if value is not None]

    def numbers(self, index: int) -> list[float]:
        """Of an input that is a constant."""
        found = constant(self.node.inputs[index]) if index < len(self.node.inputs) else None
        if found is None:
            raise NotARowStepError("it needs a constant")
        return found

    def integers(self, index: int) -> list[int]:
        """The same, as integers."""
        return [int(item) for item in self.numbers(index)]

    def axis(self, default: int = 0) -> int:
        """The attribute, as an axis behind the tokens'."""
        given = self.node.attributes["axis"].as_int() if "axis" in self.node.attributes else default
        rank = len(row_dims(self.node.outputs[0]))
        axis = given - 1 if given > 0 else given + rank
        if given == 0 or not 0 <= axis < rank:
            raise NotARowStepError("it works along the tokens")
        return axis


def _elementwise(row: RowNode) -> list[View]:
    return [row.program.step(_FUNCTIONS[row.node.op_type], *row.views())]


def _gelu(row: RowNode) -> list[View]:
    kind = row.node.attributes["approximate"].as_string() if "approximate" in row.node.attributes else "none"
    return [row.program.step("gelu_tanh" if kind == "tanh" else "gelu", row.view(0))]


def _folded(kind: str) -> Callable[[RowNode], list[View]]:
    return lambda row: [reduce(lambda a, b: row.program.step(kind, a, b), row.views())]


def _with_number(kind: str, value: float, *, is_first: bool) -> Callable[[RowNode], list[View]]:
    def rule(row: RowNode) -> list[View]:
        operands = (number(value), row.view(0)) if is_first else (row.view(0), number(value))
        return [row.program.step(kind, *operands)]

    return rule


def _swapped(kind: str) -> Callable[[RowNode], list[View]]:
    return lambda row: [row.program.step(kind, row.view(1), row.view(0))]


def _equal(row: RowNode) -> list[View]:
    a, b = row.views()
    step = row.program.step
    return [step("mul", step("not_less", a, b), step("not_less", b, a))]


def _where(row: RowNode) -> list[View]:
    condition, first, second = row.views()
    return [row.program.step("select", first, second, condition)]


def _clip(row: RowNode) -> list[View]:
    found = row.view(0)
    for index, kind in ((1, "max"), (2, "min")):
        if index < len(row.node.inputs) and row.node.inputs[index] is not None:
            found = row.program.step(kind, number(row.numbers(index)[0]), found)
    return [found]


def _power(row: RowNode) -> list[View]:
    x, (exponent, *rest) = row.view(0), row.numbers(1)
    step = row.program.step
    if rest or exponent not in (*_POWERS, 0.5, -0.5, -1.0):
        raise NotARowStepError(f"its power is {exponent}")
    if exponent in _POWERS:
        return [reduce(lambda power, _: step("mul", power, x), range(1, _POWERS[exponent]), x)]
    base = step("sqrt", x) if abs(exponent) < 1 else x
    return [base if exponent > 0 else step("div", number(1.0), base)]


def _reshape(row: RowNode) -> list[View]:
    x = row.view(0)
    return [x.with_numbers(x.numbers.reshape(row_dims(row.node.outputs[0])))]


def _same(row: RowNode) -> list[View]:
    return [row.view(0)]


def _transpose(row: RowNode) -> list[View]:
    x, order = row.view(0), row.node.attributes["perm"].as_ints()
    if order[0] != 0:
        raise NotARowStepError("it moves the tokens' axis")
    return [x.with_numbers(x.numbers.transpose([axis - 1 for axis in order[1:]]))]


def _slice(row: RowNode) -> list[View]:
    x = row.view(0)
    starts, ends, axes, steps = (row.integers(index) for index in (1, 2, 3, 4))
    places = [slice(None)] * x.numbers.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if axis < 1:
            raise NotARowStepError("it cuts the tokens")
        places[axis - 1] = slice(start, end, step)
    return [x.with_numbers(x.numbers[tuple(places)])]


def _split(row: RowNode) -> list[View]:
    x, bounds = row.view(0), np.cumsum(row.integers(1))[:-1]
    return [x.with_numbers(part) for part in np.split(x.numbers, bounds, axis=row.axis())]


def _gather(row: RowNode) -> list[View]:
    x = row.view(0)
    return [x.with_numbers(np.take(x.numbers, row.integers(1), axis=row.axis()))]


def _expand(row: RowNode) -> list[View]:
    return [row.view(0).like(row_dims(row.node.outputs[0]))]


def _concat(row: RowNode) -> list[View]:
    axis, dims = row.axis(), row_dims(row.node.outputs[0])
    flat = [view.with_numbers(view.numbers.reshape(*dims[:axis], -1)) for view in row.views()]
    found = reduce(row.program.join, flat)
    return [found.with_numbers(found.numbers.reshape(dims))]


def _reduce(kind: str) -> Callable[[RowNode], list[View]]:
    def rule(row: RowNode) -> list[View]:
        x = row.view(0)
        axes = [axis - 1 if axis > 0 else axis + x.numbers.ndim for axis in row.integers(1)]
        if any(not 0 <= axis < x.numbers.ndim for axis in axes):
            raise NotARowStepError("it works along the tokens")
        kept = [axis for axis in range(x.numbers.ndim) if axis not in axes]
        moved = x.numbers.transpose([*kept, *axes]).reshape(*(x.numbers.shape[axis] for axis in kept), -1)
        operand = x.with_numbers(moved)
        if kind == "max":
            found = row.program.reduced("largest", operand)
        else:
            found = row.program.reduced("dot", operand, number(1.0))
            if kind == "mean":
                found = row.program.step("mul", found, number(1.0 / moved.shape[-1]))
        return [found.with_numbers(found.numbers.reshape(row_dims(row.node.outputs[0])))]

    return rule


def _softmax(row: RowNode) -> list[View]:
    x, program = row.view(0), row.program
    powers = program.step("exp", program.step("sub", x, program.reduced("largest", x)))
    return [program.step("div", powers, program.reduced("dot", powers, number(1.0)))]


def _rms_norm(row: RowNode) -> list[View]:
    return [_scaled(row, _normalised(row, row.view(0)), 1, "ones", "mul")]


def _layer_norm(row: RowNode) -> list[View]:
    x, program = row.view(0), row.program
    mean = program.step("mul", program.reduced("dot", x, number(1.0)), number(1.0 / x.numbers.shape[-1]))
    normed = _normalised(row, program.step("sub", x, mean))
    return [_scaled(row, _scaled(row, normed, 1, "ones", "mul"), 2, "zeros", "add")]


def _normalised(row: RowNode, x: View) -> View:
    """X / sqrt(mean(x^2) + epsilon) over the last axis."""
    program, epsilon = row.program, row.node.attributes["epsilon"].as_float()
    mean = program.step("fma", program.reduced("dot", x, x), number(1.0 / x.numbers.shape[-1]), number(epsilon))
    return program.step("mul", x, program.step("div", number(1.0), program.step("sqrt", mean)))


def _scaled(row: RowNode, x: View, index: int, nothing: str, kind: str) -> View:
    """With a weight or bias, unless it is one that changes nothing."""
    value = row.node.inputs[index] if index < len(row.node.inputs) else None
    if value is None or str(value.name).startswith(f"{nothing}."):
        return x
    return row.program.step(kind, x, row.view(index))


def _matrix(row: RowNode) -> list[View]:
    """A small matrix times a row: each result is the sum of a row's products."""
    weight = row.view(1)
    if "transB" not in row.node.attributes or row.node.attributes["transB"].as_int() != 1:
        raise NotARowStepError("its matrix has inputs first")
    found = row.program.reduced("dot", row.view(0).like(weight.numbers.shape), weight)
    found = found.with_numbers(found.numbers.reshape(-1))
    return [found if len(row.views()) == 2 else row.program.step("add", found, row.view(2))]  # noqa: PLR2004


def _cast(row: RowNode) -> list[View]:
    if row.node.attributes["to"].as_int() != ir.DataType.FLOAT:
        raise NotARowStepError("it makes another type")
    return [row.view(0)]


# What only puts elements in other places: no step is needed for it.
MOVES: dict[str, Callable[[RowNode], list[View]]] = {
    "Cast": _cast,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": _same,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
RULES: dict[str, Callable[[RowNode], Sequence[View]]] = {
    **dict.fromkeys(_FUNCTIONS, _elementwise),
    **MOVES,
    "And": _folded("mul"),
    "Clip": _clip,
    "Concat": _concat,
    "Equal": _equal,
    "Gemm": _matrix,
    "Gelu": _gelu,
    "Greater": _swapped("less"),
    "GreaterOrEqual": _folded("not_less"),
    "LayerNormalization": _layer_norm,
    "LessOrEqual": _swapped("not_less"),
    "Max": _folded("max"),
    "Min": _folded("min"),
    "Neg": _with_number("mul", -1.0, is_first=False),
    "Not": _with_number("sub", 1.0, is_first=True),
    "Or": _folded("max"),
    "Pow": _power,
    "Reciprocal": _with_number("div", 1.0, is_first=True),
    "ReduceMax": _reduce("max"),
    "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"),
    "Relu": _with_number("max", 0.0, is_first=True),
    "SimplifiedLayerNormalization": _rms_norm,
    "Softmax": _softmax,
    "Where": _where,
}
