"""A program of RowSteps while it is written: values of a row, views of their elements, and steps that make new ones.

A view is kept as the numbers of its elements, so that reshapes, slices, transposes and copies along axes are free. A
step reads views whose numbers lie on up to three axes; others are copied first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter import contract

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

Numbers = np.ndarray[Any, np.dtype[np.int64]]
_MOST_AXES = 3
_NONE, _NUMBER, _FIRST_VALUE = 0, 1, 2  # sources of an operand


class NotARowStepError(Exception):
    """What no program can do; the node stays as it is."""


@dataclass(frozen=True, slots=True)
class View:
    """Elements `numbers` of a value, in the axes behind the tokens'; or one number."""

    value: ir.Value | int | None  # an input of the program, or a step by its number; None: `number`
    numbers: Numbers
    number: float = 0.0

    def with_numbers(self, numbers: Numbers) -> View:
        """Other elements, or the same in other axes."""
        return View(self.value, numbers, self.number)

    def like(self, dims: Sequence[int]) -> View:
        """Repeated along axes of one element, as numpy and ONNX do."""
        return self.with_numbers(np.broadcast_to(self.numbers, dims))


def number(value: float) -> View:
    """A number that is the same in every row."""
    return View(None, np.zeros((), dtype=np.int64), value)


def whole(value: ir.Value | int, dims: Sequence[int]) -> View:
    """All elements of a value."""
    return View(value, np.arange(math.prod(dims), dtype=np.int64).reshape(tuple(dims)))


@dataclass(slots=True)
class RowProgram:
    """Inputs and steps in order."""

    rows: dict[ir.Value, int] = field(default_factory=dict)  # input -> width
    vectors: dict[ir.Value, int] = field(default_factory=dict)
    _steps: list[tuple[list[int], list[tuple[View, tuple[int, ...], int]], int]] = field(default_factory=list)
    _widths: list[int] = field(default_factory=list)

    @property
    def num_steps(self) -> int:
        """So far."""
        return len(self._steps)

    def input(self, value: ir.Value, dims: Sequence[int], *, is_vector: bool) -> View:
        """A value that the program is given."""
        kept = self.vectors if is_vector else self.rows
        kept[value] = math.prod(dims)
        if len(self.rows) + len(self.vectors) > contract.MOST_ROW_INPUTS:
            raise NotARowStepError("it has too many inputs")
        return whole(value, dims)

    def step(self, kind: str, *operands: View, dims: Sequence[int] | None = None) -> View:
        """An elementwise step; its operands are repeated to their common axes, or to `dims`."""
        found = tuple(dims) if dims is not None else np.broadcast_shapes(*(item.numbers.shape for item in operands))
        wide = [item.like(found) for item in operands]
        axes = _axes([item.numbers.reshape(-1) for item in wide], _MOST_AXES)
        if axes is None:
            wide = [item if _is_whole(item) else self.copied(item) for item in wide]
            axes = _axes([item.numbers.reshape(-1) for item in wide], _MOST_AXES)
        if axes is None:
            raise NotARowStepError(f"its {kind} has operands of too many axes")
        return self._add(kind, wide, axes, found)

    def copied(self, view: View) -> View:
        """The same elements as a value of their own."""
        axes = _axes([view.numbers.reshape(-1)], _MOST_AXES)
        if axes is None:
            raise NotARowStepError("it takes elements in an order of too many axes")
        return self._add("copy", [view], axes, view.numbers.shape)

    def join(self, first: View, second: View) -> View:
        """Side by side along the last axis."""
        operands = [first, second]
        axes = [_last_axis(item) for item in operands]
        outer = None if None in axes else _axes([item.numbers[..., 0].reshape(-1) for item in operands], _MOST_AXES - 1)
        if outer is None:
            operands = [self.copied(item) for item in operands]
            axes = [_last_axis(item) for item in operands]
            outer = _axes([item.numbers[..., 0].reshape(-1) for item in operands], _MOST_AXES - 1)
        if outer is None:
            raise NotARowStepError("it joins values of too many axes")
        widths = [item.numbers.shape[-1] for item in operands]
        inner = (sum(widths), [axis or 0 for axis in axes])
        return self._add("join", operands, [inner, *outer], (*first.numbers.shape[:-1], sum(widths)), widths[0])

    def reduced(self, kind: str, *operands: View) -> View:
        """Over the last axis: `dot` of two values, `largest` of one. The axis stays, with one element."""
        found = np.broadcast_shapes(*(item.numbers.shape for item in operands))
        wide = [item.like(found) for item in operands]
        if any(_last_axis(item) is None for item in wide):
            wide = [self.copied(item) for item in wide]
        outer = _axes([item.numbers[..., 0].reshape(-1) for item in wide], _MOST_AXES - 1)
        if outer is None:
            raise NotARowStepError(f"its {kind} has operands of too many axes")
        axes = [(found[-1], [_last_axis(item) or 0 for item in wide]), *outer]
        return self._add(kind, wide, axes, (*found[:-1], 1))

    def _add(
        self,
        kind: str,
        operands: Sequence[View],
        axes: Sequence[tuple[int, list[int]]],
        dims: Sequence[int],
        num_first: int = 0,
    ) -> View:
        """Axes are the innermost first: a size, and how far apart each operand's elements are."""
        if len(self._steps) == contract.MOST_ROW_STEPS:
            raise NotARowStepError("it has too many steps")
        padded = [*axes, *[(1, [0] * len(operands))] * (_MOST_AXES - len(axes))][::-1]
        parts = [
            (item, tuple(strides[place] for _, strides in padded), int(item.numbers.reshape(-1)[0]))
            for place, item in enumerate(operands)
        ]
        head = [contract.ROW_STEP_KINDS.index(kind), *(size for size, _ in padded)]
        if math.prod(head[1:]) > contract.MOST_ROW_COLUMNS:
            raise NotARowStepError("it has too many elements")
        self._steps.append((head, parts, num_first))
        self._widths.append(math.prod(dims))
        return whole(len(self._steps) - 1, dims)

    def as_output(self, view: View) -> int:
        """The step that has made exactly this value; a copy, where none has."""
        if isinstance(view.value, int) and _is_whole(view) and view.numbers.size == self._widths[view.value]:
            return view.value
        self.copied(view)
        return len(self._steps) - 1

    def inputs(self) -> list[ir.Value]:
        """Those of the node."""
        return [*self.rows, *self.vectors]

    def attributes(self, outputs: Sequence[int]) -> dict[str, Any]:
        """Those of the node, as native/src/base/row_program.h reads them."""
        inputs = self.inputs()
        places = {value: _FIRST_VALUE + place for place, value in enumerate(inputs)}
        integers: list[int] = []
        for head, parts, num_first in self._steps:
            integers += head
            for view, strides, offset in parts:
                if view.value is None:
                    integers += [_NUMBER, int(np.float32(view.number).view(np.uint32)), 0, 0, 0]
                else:
                    step = _FIRST_VALUE + len(inputs)
                    source = step + view.value if isinstance(view.value, int) else places[view.value]
                    integers += [source, offset, *strides]
            for place in range(len(parts), 3):
                integers += [_NONE, num_first if place == 2 else 0, 0, 0, 0]  # noqa: PLR2004 - c of a join
        widths = [*self.rows.values(), *self.vectors.values()]
        return {"row_inputs": len(self.rows), "widths": widths, "steps": integers, "outputs": list(outputs)}


def _is_whole(view: View) -> bool:
    flat = view.numbers.reshape(-1)
    return view.value is not None and bool((flat == np.arange(flat.size)).all())


def _last_axis(view: View) -> int | None:
    """How far apart the elements along the last axis are; None: not equally far."""
    lines = view.numbers.reshape(-1, view.numbers.shape[-1])
    apart = int(lines[0, 1] - lines[0, 0]) if lines.shape[1] > 1 else 0
    expected = lines[:, :1] + apart * np.arange(lines.shape[1])
    return apart if apart >= 0 and bool((lines == expected).all()) else None


def _axes(columns: Sequence[Numbers], most: int) -> list[tuple[int, list[int]]] | None:
    """Axes on which all columns of numbers lie, the innermost first; None: there are more than `most`."""
    axes: list[tuple[int, list[int]]] = []
    while columns[0].size > 1:
        if len(axes) == most:
            return None
        size = math.gcd(*(_run(column) for column in columns), columns[0].size)
        while size > 1 and not all(_is_even(column, size) for column in columns):
            size = next(part for part in range(size - 1, 0, -1) if size % part == 0)
        if size == 1:
            return None
        strides = [int(column[1] - column[0]) for column in columns]
        if min(strides) < 0:
            return None
        axes.append((size, strides))
        columns = [column[::size] for column in columns]
    return axes


def _run(column: Numbers) -> int:
    """Elements from the first on that are equally far apart."""
    differs = np.flatnonzero(np.diff(column) != column[1] - column[0])
    return int(differs[0]) + 1 if differs.size else column.size


def _is_even(column: Numbers, size: int) -> bool:
    lines = column.reshape(-1, size)
    return bool((lines == lines[:, :1] + (column[1] - column[0]) * np.arange(size)).all())
