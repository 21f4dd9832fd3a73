"""Oracles of the operators that pick, join and norm rows: native/GRAPH.md in numpy, in double."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Array: TypeAlias = NDArray[np.float32]


def gather_rows(x: Array, rows: NDArray[np.int32]) -> Array:
    """[N, C], [n] -> [n, C]."""
    return x[rows]


def join(parts: Sequence[Array], axis: int) -> Array:
    """Matrices below each other (0) or side by side (1)."""
    return np.concatenate(parts, axis=axis)


def rows_part(x: Array, part: int, num_parts: int) -> Array:
    """[num_parts n, C] -> [n, C]."""
    return np.split(x, num_parts)[part]


def norm_activation(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    residual: Array | None = None,
    *,
    norm: str = "none",
    activation: str = "none",
    epsilon: float = 0.0,
) -> NDArray[np.float64]:
    """[.., C] -> the same."""
    value = x.astype(np.float64)
    if norm == "layer":
        value = value - value.mean(axis=-1, keepdims=True)
    if norm != "none":
        value = value / np.sqrt((value**2).mean(axis=-1, keepdims=True) + epsilon)
    value = value * (1.0 if weight is None else weight) + (0.0 if bias is None else bias)
    if activation == "silu":
        value = value / (1 + np.exp(-value))
    elif activation == "gelu":
        value = value * 0.5 * (1 + np.vectorize(math.erf)(value / math.sqrt(2)))
    return value + (0.0 if residual is None else residual)
