"""How far stored matrices are from the checkpoint's, by the type that it has and the format that they got."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .contract import TILE_ROWS
from .errors import ParityError
from .formats import FOUR_BIT, keeps
from .packing import packed_bytes, padded, separate, unpack
from .strips import in_strips

if TYPE_CHECKING:
    from pathlib import Path

    from .passes import PackedWeight, Plan
    from .sources import WeightSource
    from .weights_file import StoredTensor

Array = np.ndarray[Any, np.dtype[Any]]
_SAMPLED_ROWS = 1024  # of each matrix, its first
_KEPT_ERROR = 1e-2  # of integers that are taken over: offsets of outliers are rounded to f16, 1.1e-3 in Qwen2.5-Coder
# What rounding a matrix to a format may cost: far more is a fault.
_MOST_ERROR = {"int4": 0.5, "int4_asym": 0.5, "int8": 0.05, "f16": 0.01, "f32": 1e-6}


@dataclass(frozen=True, slots=True)
class Loss:
    """Of all matrices that the checkpoint has in one type and the bundle in one format."""

    stored_type: str  # in the checkpoint
    format: str
    relative_error: float  # root of the mean square of the difference, relative to that of the weights
    num_weights: int


class LossMeter:
    """Reads parameters of the checkpoint, and compares the first rows of each matrix with those in the bundle."""

    def __init__(self, plan: Plan, source: WeightSource, weights: Path, tensors: tuple[StoredTensor, ...]) -> None:
        self._plan, self._source = plan, source
        self._path = weights
        self._offsets = {tensor.name: tensor.offset for tensor in tensors}
        self._weights: dict[str, list[PackedWeight]] = defaultdict(list)
        for weight in plan.weights.values():
            for name in weight.sources if weight.is_plain else ():
                self._weights[name].append(weight)
        self._sums: dict[tuple[str, str], Array] = defaultdict(lambda: np.zeros(3))  # error, norm, number of weights

    def read(self, name: str) -> Array:
        """The checkpoint's parameter, which is compared the first time that it is read.

        Raises:
            ParityError: a matrix that is further from the checkpoint's than its format explains.
        """
        values = self._source.read(name)
        for weight in self._weights.pop(name, ()):
            self._compare(name, weight, values)
        return values

    def losses(self) -> tuple[Loss, ...]:
        """What was lost, the most weights first."""
        found = [
            Loss(kind, format_name, float(np.sqrt(error / norm)) if norm else 0.0, int(count))
            for (kind, format_name), (error, norm, count) in self._sums.items()
        ]
        return tuple(sorted(found, key=lambda loss: -loss.num_weights))

    def _compare(self, name: str, weight: PackedWeight, values: Array) -> None:
        found = self._first_rows(name, weight, min(len(values), _SAMPLED_ROWS))

        def sums(start: int, end: int) -> tuple[float, float]:
            expected = values[start:end].astype(np.float64)
            return np.square(found[start:end] - expected).sum(), np.square(expected).sum()

        error, norm = np.sum(list(in_strips(sums, *found.shape)), axis=0)
        kind = self._source.stored_type(name) or "unknown"
        kept = weight.format in FOUR_BIT and keeps(kind, weight.format)
        limit = _KEPT_ERROR if kept else _MOST_ERROR[weight.format]
        if not error <= limit**2 * norm:
            raise ParityError(
                f"{name}, {kind} in the checkpoint, is stored as {weight.format} with a relative error of "
                f"{np.sqrt(error / norm) if norm else np.inf:.3g}, the limit is {limit:g}; try a finer weight format"
            )
        self._sums[kind, weight.format] += error, norm, values.size

    def _first_rows(self, name: str, weight: PackedWeight, count: int) -> Array:
        index = weight.sources.index(name)
        if weight.interleaved:
            return separate(self._rows(weight, 0, padded(2 * count, 2 * TILE_ROWS)))[index][:count]
        start = sum(self._plan.shape(source)[0] for source in weight.sources[:index])
        return self._rows(weight, start, start + count)

    def _rows(self, weight: PackedWeight, start: int, end: int) -> Array:
        """Rows of a stored matrix as f32."""
        first, last = start // TILE_ROWS, -(-end // TILE_ROWS)
        tile_bytes = packed_bytes(TILE_ROWS, weight.in_features, weight.format)
        place = self._offsets[weight.name]
        tiles = np.fromfile(self._path, np.uint8, (last - first) * tile_bytes, offset=place + first * tile_bytes)
        rows = unpack(tiles, (last - first) * TILE_ROWS, weight.in_features, weight.format)
        return rows[start - first * TILE_ROWS : end - first * TILE_ROWS]
