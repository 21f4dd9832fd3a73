"""Oracle of RowSteps, written from GRAPH.md: one element after the other in double precision; and random programs."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Floats = "NDArray[np.float32]"
STEP = 19  # integers
FUNCTIONS: dict[str, Callable[..., float]] = {
    "copy": lambda a: a,
    "abs": abs,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "tanh": math.tanh,
    "erf": math.erf,
    "gelu": lambda a: a * (1 + math.erf(a / math.sqrt(2))) / 2,
    "gelu_tanh": lambda a: a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))) / 2,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
    "min": min,
    "less": lambda a, b: float(a < b),
    "not_less": lambda a, b: float(not a < b),
    "fma": lambda a, b, c: a * b + c,
    "select": lambda a, b, c: a if c >= 0.5 else b,
}
KINDS = (*FUNCTIONS, "join", "dot", "largest")
ARITY = {"join": 2, "dot": 2, "largest": 1} | {
    name: function.__code__.co_argcount if hasattr(function, "__code__") else 2 if name in ("max", "min") else 1
    for name, function in FUNCTIONS.items()
}


def step(kind: str, dims: Sequence[int], *operands: Sequence[int], num_first: int = 0) -> list[int]:
    """One step's integers; an operand is (source, offset, stride, stride, stride)."""
    missing = [[0, 0, 0, 0, 0] for _ in range(3 - len(operands))]
    integers = [KINDS.index(kind), *dims]
    for operand in (*operands, *missing):
        integers += operand
    integers[15] += num_first
    return integers


def constant(value: float) -> list[int]:
    """An operand that is one number."""
    return [1, int(np.float32(value).view(np.uint32)), 0, 0, 0]


def run(attributes: dict[str, Any], inputs: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float64]]:
    """Every output, [num_rows, width]."""
    steps = np.asarray(attributes["steps"]).reshape(-1, STEP).tolist()
    rows = [_run_row(attributes["row_inputs"], steps, inputs, row) for row in range(len(inputs[0]))]
    return [np.asarray([row[index] for row in rows]) for index in attributes["outputs"]]


def _run_row(
    num_row_inputs: int, steps: list[list[int]], inputs: Sequence[NDArray[np.float32]], row: int
) -> list[list[float]]:
    values: list[list[float]] = [
        [float(item) for item in (value[row] if index < num_row_inputs else value).reshape(-1)]
        for index, value in enumerate(inputs)
    ]
    for integers in steps:
        kind, dims = KINDS[integers[0]], integers[1:4]
        operands = [integers[4 + 5 * place : 9 + 5 * place] for place in range(ARITY[kind])]
        values.append(_run_step(kind, dims, operands, integers[15], values))
    return values[len(inputs) :]


def _run_step(
    kind: str, dims: list[int], operands: list[list[int]], num_first: int, values: list[list[float]]
) -> list[float]:
    def at(place: int, i0: int, i1: int, i2: int) -> float:
        source, offset, *strides = operands[place]
        if source == 1:
            return float(np.uint32(offset).view(np.float32))
        return values[source - 2][offset + i0 * strides[0] + i1 * strides[1] + i2 * strides[2]]

    lines = list(itertools.product(range(dims[0]), range(dims[1])))
    if kind == "dot":
        return [math.fsum(at(0, *line, i) * at(1, *line, i) for i in range(dims[2])) for line in lines]
    if kind == "largest":
        return [max(at(0, *line, i) for i in range(dims[2])) for line in lines]
    if kind == "join":
        return [
            at(0, *line, i) if i < num_first else at(1, *line, i - num_first) for line in lines for i in range(dims[2])
        ]
    return [FUNCTIONS[kind](*(at(p, *line, i) for p in range(len(operands)))) for line in lines for i in range(dims[2])]


_TAME = ("copy", "abs", "sigmoid", "tanh", "erf", "gelu", "gelu_tanh", "add", "sub", "max", "min", "join", "largest")


def random_program(seed: int) -> tuple[dict[str, Any], list[NDArray[np.float32]]]:
    """Attributes and inputs of a program whose values stay small: sizes, strides, offsets and wires are random."""
    rng = np.random.default_rng(seed)
    num_rows, num_vectors = int(rng.integers(1, 4)), int(rng.integers(0, 3))
    widths = [int(rng.choice((1, 7, 16, 33, 64))) for _ in range(num_rows + num_vectors)]
    all_widths, steps = list(widths), []
    for _ in range(int(rng.integers(1, 14))):
        kind = str(rng.choice((*_TAME, "mul", "fma", "dot")))
        dims = [int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.choice((1, 3, 16, 17, 40)))]
        dims[2] += kind == "join"
        num_first = int(rng.integers(1, dims[2])) if kind == "join" else 0
        operands = []
        for place in range(ARITY[kind]):
            if place and kind in ("mul", "fma", "dot"):
                operands.append(constant(float(rng.uniform(-0.5, 0.5)) / (dims[2] if kind == "dot" else 1)))
                continue
            own = list(dims)
            if kind == "join":
                own[2] = num_first if place == 0 else dims[2] - num_first
            operands.append(_random_operand(rng, own, all_widths))
        steps.append(step(kind, dims, *operands, num_first=num_first))
        all_widths.append(dims[0] * dims[1] * (1 if kind in ("dot", "largest") else dims[2]))
    outputs = sorted({len(steps) - 1, *rng.integers(0, len(steps), 2).tolist()}, reverse=bool(seed % 2))
    attributes = {
        "row_inputs": num_rows,
        "widths": widths,
        "steps": [item for integers in steps for item in integers],
        "outputs": outputs,
    }
    tokens = 5
    inputs = [rng.standard_normal((tokens, width)).astype(np.float32) for width in widths[:num_rows]]
    return attributes, inputs + [rng.standard_normal(width).astype(np.float32) for width in widths[num_rows:]]


def _random_operand(rng: np.random.Generator, dims: list[int], widths: list[int]) -> list[int]:
    value = int(rng.integers(0, len(widths)))
    room = widths[value] - 1
    strides = [0, 0, 0]
    for axis in (2, 1, 0):
        most = room // (dims[axis] - 1) if dims[axis] > 1 else 0
        strides[axis] = min(most, int(rng.choice((0, 1, 1, 2, dims[2]))))
        room -= strides[axis] * (dims[axis] - 1)
    return [value + 2, int(rng.integers(0, room + 1)), *strides]
