"""The values that a block of 32 columns of a row can have, chosen so that columns count by their importance."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Fractions of the range that the extreme value is mapped to.
_SHRINK = torch.linspace(0.64, 1.08, 12)
_REFITS = 3
_INT4 = (-8, 7)
_INT4_ASYM = (0, 15)


@dataclass(frozen=True, slots=True)
class Grid:
    """Values scale * code (+ offset) of each row, with codes in `least`..`most`; both numbers are f16's."""

    scale: torch.Tensor  # [rows] f32
    inverse: torch.Tensor  # [rows] f32; 0 where the scale is
    offset: torch.Tensor | None  # [rows] f32
    least: int
    most: int

    @classmethod
    def of(cls, scale: torch.Tensor, offset: torch.Tensor | None) -> Grid:
        """The grid with these numbers rounded to f16."""
        halves = scale.half().float()
        inverse = torch.where(halves == 0, 0.0, 1 / halves)
        least, most = _INT4 if offset is None else _INT4_ASYM
        return cls(halves, inverse, None if offset is None else offset.half().float(), least, most)

    def codes(self, columns: torch.Tensor) -> torch.Tensor:
        """Nearest integers, f32 [..., rows], of weights [..., rows]."""
        shifted = columns if self.offset is None else columns - self.offset
        return (shifted * self.inverse).round_().clamp_(self.least, self.most)

    def values(self, codes: torch.Tensor) -> torch.Tensor:
        """What codes stand for."""
        scaled = codes * self.scale
        return scaled if self.offset is None else scaled + self.offset


def fit(columns: torch.Tensor, importance: torch.Tensor, format_name: str) -> Grid:
    """The grid of a block for "int4" or "int4_asym" with the least error, weighted by `importance` f32 [columns].

    columns: f32 [columns, rows].
    """
    weights = (importance / importance.sum())[:, None]
    return _int4(columns, weights) if format_name == "int4" else _int4_asym(columns, weights)


def _int4(columns: torch.Tensor, weights: torch.Tensor) -> Grid:
    """The least error over scales that put the extreme value near -8; the sign of the scale follows it."""
    extreme = columns.gather(0, columns.abs().argmax(0)[None])[0]
    weighted = columns * weights
    best_scale, best_gain = torch.zeros_like(extreme), torch.full_like(extreme, -1.0)
    for shrink in _SHRINK.tolist():
        codes = Grid.of(extreme * (shrink / _INT4[0]), None).codes(columns)
        # With codes q, the best scale is <w, q> / <q, q> and removes <w, q>^2 / <q, q> of the squared error.
        overlap, norm = (weighted * codes).sum(0), (codes * codes * weights).sum(0)
        fitted = torch.where(norm > 0, overlap / norm, 0.0)
        gain = overlap * fitted
        best_scale = torch.where(gain > best_gain, fitted, best_scale)
        best_gain = torch.maximum(best_gain, gain)
    return Grid.of(best_scale, None)


def _int4_asym(columns: torch.Tensor, weights: torch.Tensor) -> Grid:
    """The range of the block, then least-squares refits of scale and offset while they help."""
    low, high = columns.amin(0), columns.amax(0)
    scale, offset = (high - low) / _INT4_ASYM[1], low
    grid = Grid.of(scale, offset)
    least_error = _error(grid, columns, weights)
    for _ in range(_REFITS):
        codes = grid.codes(columns)
        code_mean, mean = (codes * weights).sum(0), (columns * weights).sum(0)
        centred = codes - code_mean
        spread = (centred * centred * weights).sum(0)
        slope = torch.where(spread > 0, (centred * columns * weights).sum(0) / spread, 0.0)
        line = (slope, mean - slope * code_mean)
        grid = Grid.of(*line)
        error = _error(grid, columns, weights)
        scale, offset = (torch.where(error < least_error, *pair) for pair in zip(line, (scale, offset), strict=True))
        least_error = torch.minimum(least_error, error)
    return Grid.of(scale, offset)


def _error(grid: Grid, columns: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return ((columns - grid.values(grid.codes(columns))).square() * weights).sum(0)
