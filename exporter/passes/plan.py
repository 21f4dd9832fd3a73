"""What the passes decide about the stored tensors: which parameters make up each initializer of the final graph."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx_ir as ir

from pilotfish.exporter.contract import BLOCK_COLUMNS

from .match import static_shape
from .structure import Structures, without_axes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch


_LAYER_NUMBER = re.compile(r"\.\d+(?=[.:])")


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A packed matrix: rows of `sources` one after the other, or gate and up rows in alternating tiles."""

    name: str
    sources: tuple[str, ...]
    interleaved: bool  # tile 2i from the first half of the rows, tile 2i + 1 from the second
    format: str
    out_features: int
    in_features: int
    rows: tuple[int, ...] | None = None  # of all sources, in this order; -1: zeros; None: all
    transposed: bool = False  # the checkpoint has [in_features, out_features]
    scale: float = 1.0  # that every weight is multiplied with
    part: str = field(default="linear", compare=False)  # of the model, or "embedding" or "lm_head"

    @property
    def is_plain(self) -> bool:
        """Whether its rows are the checkpoint's, part after part."""
        parts_are_sources = not self.interleaved or len(self.sources) == 2  # noqa: PLR2004 - gate and up
        return parts_are_sources and self.rows is None and not self.transposed and self.scale == 1


@dataclass(frozen=True, slots=True)
class Vector:
    """A stored f32 vector, arranged like the rows of a PackedWeight."""

    name: str
    sources: tuple[str, ...]
    interleaved: bool = False
    rows: tuple[int, ...] | None = None
    scale: float = 1.0

    @property
    def is_plain(self) -> bool:
        """Whether its elements are the checkpoint's, part after part."""
        return self.rows is None and self.scale == 1 and (not self.interleaved or len(self.sources) == 2)  # noqa: PLR2004


class Formats(Protocol):
    """Which format a matrix is stored in."""

    def of(self, part: str, names: tuple[str, ...]) -> str:
        """The format of the matrix of a part ("linear", "embedding" or "lm_head") that parameters make up."""


@dataclass(slots=True)
class Plan:
    """Collects the stored tensors of one model while its graph is rewritten."""

    formats: Formats
    logit_ids: tuple[int, ...] | None  # rows of the lm_head that are kept; None: all
    parameters: dict[str, ir.Value]  # traced parameter name -> graph value
    weights: dict[str, PackedWeight] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    values: dict[str, ir.Value] = field(default_factory=dict)  # stored name -> graph value
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)  # that the model computes when it is built
    derived: dict[str, ir.Value] = field(default_factory=dict)  # name -> traced value that is computed of parameters
    tables: dict[str, ir.Value] = field(default_factory=dict)  # stored name -> traced value that positions decide
    halves: dict[str, tuple[int, ...]] = field(default_factory=dict)  # columns of a table that are stored
    unfused: list[str] = field(default_factory=list)  # fusions that did not match, for `info`
    _structures: Structures = field(default_factory=Structures)
    _pending: dict[str, ir.Value] = field(default_factory=dict)
    _constants: dict[tuple[Any, ...], ir.Value] = field(default_factory=dict)

    def shape(self, parameter: str) -> tuple[int, ...]:
        """Shape of a parameter of the checkpoint."""
        return tuple(axis for axis in static_shape(self.parameters[parameter]) if axis is not None)

    def weight(
        self,
        name: str,
        sources: Sequence[ir.Value],
        role: str,
        *,
        interleaved: bool = False,
        stored_as: str | None = None,
        rows: tuple[int, ...] | None = None,
        transposed: bool = False,
        scale: float = 1.0,
    ) -> PackedWeight:
        """Plans a packed matrix; the same rows of the same source in the same format are stored once.

        stored_as: a format instead of the role's. A matrix narrower than a block of the int formats is f16.
        """
        names = tuple(str(source.name) for source in sources)
        format_name = stored_as or self.formats.of(role, names)
        shapes = [self.shape(source)[::-1] if transposed else self.shape(source) for source in names]
        if shapes[0][1] < BLOCK_COLUMNS and format_name.startswith("int"):
            format_name = "f16"  # not even one block
        kept = rows if self.logit_ids is None or role != "lm_head" else self.logit_ids
        num_rows = sum(shape[0] for shape in shapes) if kept is None else len(kept)
        planned = PackedWeight(
            name,
            names,
            interleaved,
            format_name,
            num_rows,
            shapes[0][1],
            kept,
            transposed=transposed,
            scale=scale,
            part=role,
        )
        key = (names, format_name, kept, transposed, scale)
        for other in self.weights.values():
            if (other.sources, other.format, other.rows, other.transposed, other.scale) == key:
                return other
        self.weights[name] = planned
        return planned

    def vector(
        self,
        name: str,
        sources: Sequence[ir.Value],
        *,
        interleaved: bool = False,
        rows: tuple[int, ...] | None = None,
        scale: float = 1.0,
    ) -> ir.Value:
        """Plans an f32 vector and returns its graph value."""
        names = tuple(str(source.name) for source in sources)
        self.vectors[name] = Vector(name, names, interleaved, rows, scale)
        return self.value(name)

    def value(self, name: str) -> ir.Value:
        """The graph value of a stored tensor, one a name."""
        return self.values.setdefault(name, ir.Value(name=name))

    def pending(self, name: str, shape: Sequence[int | None]) -> ir.Value:
        """The value of a parameter, or of what is computed of parameters, that no pass has stored yet."""
        return self._pending.setdefault(name, ir.Value(name=name, shape=ir.Shape(shape)))

    def is_pending(self, value: ir.Value | None) -> bool:
        """Whether a value waits to be stored."""
        return value is not None and self._pending.get(str(value.name)) is value

    def zeros(self, count: int) -> ir.Value:
        """A vector of zeros that can be a part of another."""
        return self.filled(f"zeros.{count}", np.zeros(count, dtype=np.float32))

    def ones(self, count: int) -> ir.Value:
        """A vector of ones, for a norm without a weight."""
        return self.filled(f"ones.{count}", np.ones(count, dtype=np.float32))

    def filled(self, name: str, values: np.ndarray[Any, np.dtype[np.float32]]) -> ir.Value:
        """A vector of these numbers that can be a part of another."""
        self.derived.setdefault(name, ir.Value(name=name, const_value=ir.tensor(values)))
        return self.pending(name, values.shape)

    def constant(self, array: np.ndarray[Any, Any]) -> ir.Value:
        """A few numbers that the graph's own file has, one value for the same ones."""
        key = (array.dtype.str, array.shape, array.tobytes())
        name = f"constant.{len(self._constants)}"
        return self._constants.setdefault(key, ir.Value(name=name, const_value=ir.tensor(array, name=name)))

    def integers(self, numbers: Sequence[int]) -> ir.Value:
        """Sizes or axes."""
        return self.constant(np.asarray(numbers, dtype=np.int64))

    def constants(self) -> list[ir.Value]:
        """Those that are read."""
        return [value for value in self._constants.values() if value.uses()]

    def table(self, traced: ir.Value, width: int) -> ir.Value:
        """A table with a row for each position, [max_positions, width]."""
        traced = without_axes(traced)
        for known, value in self.tables.items():
            if known not in self.halves and self._structures(value) == self._structures(traced):
                return self.value(known)
        stored = f"positions.{len(self.tables)}"
        self.tables[stored] = traced
        value = self.value(stored)
        value.shape = ir.Shape(["num_positions", width])
        return value

    def half_table(self, whole: str, columns: tuple[int, ...]) -> str:
        """Stored name of some columns of a table, which the first two are called cos and sin of."""
        for known, traced in self.tables.items():
            if traced is self.tables[whole] and self.halves.get(known) == columns:
                return known
        number = len(self.halves) // 2
        name = ("cos", "sin")[len(self.halves) % 2] + (f".{number}" if number else "")
        self.tables[name], self.halves[name] = self.tables[whole], columns
        self.value(name).shape = ir.Shape(["num_positions", len(columns)])
        return name

    def unrotated(self, columns: int) -> tuple[str, str]:
        """Tables that rotate nothing, for layers without positions."""
        for name, value in (("unit_cos", 1.0), ("unit_sin", 0.0)):
            if name not in self.tables:
                number = ir.Value(name=name, const_value=ir.tensor(np.full((1, columns), value, dtype=np.float32)))
                self.tables[name], self.halves[name] = number, tuple(range(columns))
                self.value(name).shape = ir.Shape(["num_positions", columns])
        return "unit_cos", "unit_sin"

    def reasons(self) -> list[str]:
        """Why fusions did not match, without the numbers of layers and once each."""
        return list(dict.fromkeys(_LAYER_NUMBER.sub(".*", reason) for reason in self.unfused))

    def sort(self, graph: ir.Graph) -> None:
        """Orders the matrices as a pass reads them, so that the weights file is read front to back."""
        used = [str(value.name) for node in graph for value in node.inputs if value is not None]
        self.weights = {name: self.weights[name] for name in used if name in self.weights}
        names = set(used)
        self.vectors = {name: vector for name, vector in self.vectors.items() if name in names}
        self.tables = {name: table for name, table in self.tables.items() if name in names}
