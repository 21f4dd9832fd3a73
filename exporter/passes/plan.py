"""What the passes decide about the stored tensors: which parameters make up each initializer of the final graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import onnx_ir as ir

from .match import static_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A packed matrix: rows of `sources` one after the other, or gate and up rows in alternating tiles."""

    name: str
    sources: tuple[str, ...]
    interleaved: bool  # tile 2i from sources[0], tile 2i + 1 from sources[1]
    format: str
    out_features: int
    in_features: int
    rows: tuple[int, ...] | None = None  # of the only source that are kept; None: all


@dataclass(frozen=True, slots=True)
class Vector:
    """A stored f32 vector, arranged like the rows of a PackedWeight."""

    name: str
    sources: tuple[str, ...]
    interleaved: bool = False


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
    rotary_module: str = ""
    values: dict[str, ir.Value] = field(default_factory=dict)  # stored name -> graph value

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
    ) -> PackedWeight:
        """Plans a packed matrix; the same rows of the same source in the same format are stored once.

        stored_as: a format instead of the role's.
        """
        names = tuple(str(source.name) for source in sources)
        format_name = stored_as or self.formats.of(role, names)
        shapes = [self.shape(source) for source in names]
        kept = self.logit_ids if role == "lm_head" else None
        num_rows = sum(shape[0] for shape in shapes) if kept is None else len(kept)
        for other in self.weights.values():
            if (other.sources, other.format, other.rows) == (names, format_name, kept):
                return other
        planned = PackedWeight(name, names, interleaved, format_name, num_rows, shapes[0][1], kept)
        self.weights[name] = planned
        return planned

    def vector(self, name: str, sources: Sequence[ir.Value], *, interleaved: bool = False) -> ir.Value:
        """Plans an f32 vector and returns its graph value."""
        self.vectors[name] = Vector(name, tuple(str(source.name) for source in sources), interleaved)
        return self.value(name)

    def value(self, name: str) -> ir.Value:
        """The graph value of a stored tensor, one a name."""
        return self.values.setdefault(name, ir.Value(name=name))

    def sort(self, graph: ir.Graph) -> None:
        """Orders the matrices as a pass reads them, so that the weights file is read front to back."""
        used = [str(value.name) for node in graph for value in node.inputs if value is not None]
        self.weights = {name: self.weights[name] for name in used if name in self.weights}
