"""What goes into a matrix on a text, and how rounding errors of one column are made up for by the others.

Knows nothing about models: inputs are rows of a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from pilotfish.exporter.contract import BLOCK_COLUMNS

_PANEL = 1024  # columns whose products are computed at once
_LEAST_SHRINK = 0.01  # of the Hessian towards its diagonal
_MOST_SHRINK = 0.9
_MOST_HELD_ROWS = 512  # about, that tell whether a rounding is the better
_LEAF = 256  # columns of a triangle that is inverted as it is


@dataclass(frozen=True, slots=True)
class Factor:
    """The inverse of a shrunken Hessian is `upper.T @ upper`, its rows and columns in `order`."""

    order: torch.Tensor  # [columns] int64: whole blocks of columns, those with most energy first
    upper: torch.Tensor  # [columns, columns] f32, upper triangular

    def solve(self, wanted: torch.Tensor) -> torch.Tensor:
        """`wanted`, f32 [rows, columns], times the inverse."""
        ordered, half, found = wanted[:, self.order], torch.empty_like(wanted), torch.empty_like(wanted)
        for start in range(0, len(self.upper), _PANEL):  # without the zeros of the triangle
            panel = slice(start, start + _PANEL)
            half[:, panel] = ordered[:, start:] @ self.upper[panel, start:].T
        for start in range(0, len(self.upper), _PANEL):
            panel = slice(start, start + _PANEL)
            found[:, self.order[panel]] = half[:, : panel.stop] @ self.upper[: panel.stop, panel]
        return found


class Inputs:
    """Rows that go into a matrix. The first ones are read to round it; the others tell whether it is the better for it.

    Each row is there twice: as it is after the rounded matrices before, and as the checkpoint's own would have made it.
    """

    def __init__(self, own: torch.Tensor, exact: torch.Tensor, num_read: int) -> None:
        """Both f32 [num_tokens, columns], of which `num_read` are read."""
        self._num_read = num_read
        self.hessian = _mean_square(own[:num_read])
        self._has_drift = not torch.equal(exact, own)
        self._own, self._exact = own[:num_read], exact[:num_read]
        held = slice(num_read, None, max((len(own) - num_read) // _MOST_HELD_ROWS, 1))  # neighbours tell much the same
        self._held_own, self._held_exact = own[held], exact[held]

    @cached_property
    def factor(self) -> Factor | None:
        """None where all inputs are zeros, so that no error shows."""
        diagonal = self.hessian.diagonal()
        mean = float(diagonal.mean())
        if mean <= 0:
            return None
        order = _order(diagonal)
        matrix = self._shrunken(mean)[order.flip(0)[:, None], order.flip(0)[None]]
        lower = torch.linalg.cholesky(matrix)
        # The reversed matrix is L L^T, so that the inverse is U^T U with U = L^-1 in reversed order.
        return Factor(order, _inverse(lower).flip(0, 1))

    def aim(self, rows: torch.Tensor) -> torch.Tensor:
        """The matrix that gives most nearly the outputs that `rows` has for the exact inputs, f32 [rows, columns].

        It goes as far as the rows bear out that were not read, which is not at all where they are few.
        """
        if not self._has_drift or self.factor is None:
            return rows
        shift = self.factor.solve(self._drifted(rows))
        predicted = self._held_own @ shift.T
        missing = (self._held_exact - self._held_own) @ rows.T
        norm = float(predicted.square().sum())
        share = float((predicted * missing).sum()) / norm if norm > 0 else 0.0
        return rows + min(max(share, 0.0), 1.0) * shift

    def held_error(self, rows: torch.Tensor, rounded: torch.Tensor) -> float:
        """Mean squared distance of outputs from those aimed at, summed over them, where inputs were not read."""
        return float((self._held_own @ rounded.T).sub_(self._held_exact @ rows.T).square().sum(1).mean())

    @cached_property
    def _drift(self) -> torch.Tensor:
        """Mean over rows of (exact - own)^T own, [columns, columns]."""
        return _mean_product(self._exact - self._own, self._own)

    def _drifted(self, rows: torch.Tensor) -> torch.Tensor:
        """`rows` times the drift, [rows, columns], in the order that multiplies less."""
        if 2 * len(rows) >= rows.shape[1]:  # others that read the same have the drift from here
            return rows @ self._drift
        return _mean_product((self._exact - self._own) @ rows.T, self._own)

    def _shrunken(self, mean: float) -> torch.Tensor:
        """Correlations of few rows are mostly chance: the more columns a row has to tell of, the less they count."""
        columns = len(self.hessian)
        share = min(max(columns / (columns + self._num_read), _LEAST_SHRINK), _MOST_SHRINK)
        matrix = self.hessian * (1 - share)
        matrix.diagonal().add_(share * self.hessian.diagonal() + _LEAST_SHRINK * mean)
        return matrix


def _mean_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Mean over rows of left^T right, [columns of left, columns of right]."""
    product = torch.empty(left.shape[1], right.shape[1])
    for start in range(0, len(product), _PANEL):
        torch.matmul(left[:, start : start + _PANEL].T, right, out=product[start : start + _PANEL])
    return product.div_(len(left))


def _mean_square(rows: torch.Tensor) -> torch.Tensor:
    """Mean over rows of x x^T, [columns, columns], of which one half is the other's mirror image."""
    product = torch.empty(rows.shape[1], rows.shape[1])
    for start in range(0, len(product), _PANEL):
        panel = slice(start, start + _PANEL)
        product[panel, : panel.stop] = rows[:, panel].T @ rows[:, : panel.stop]
        product[:start, panel] = product[panel, :start].T
    return product.div_(len(rows))


def _inverse(lower: torch.Tensor) -> torch.Tensor:
    """Of a lower triangular matrix, half by half."""
    size = len(lower)
    if size <= _LEAF:
        leaf: torch.Tensor = torch.linalg.solve_triangular(lower, torch.eye(size), upper=False)
        return leaf
    middle = size // 2
    found = torch.zeros_like(lower)
    first = found[:middle, :middle] = _inverse(lower[:middle, :middle])
    last = found[middle:, middle:] = _inverse(lower[middle:, middle:])
    found[middle:, :middle] = -(last @ (lower[middle:, :middle] @ first))
    return found


def _order(diagonal: torch.Tensor) -> torch.Tensor:
    """Columns by energy, but those of a block stay together, as they share a scale."""
    energy = diagonal.reshape(-1, BLOCK_COLUMNS)
    blocks = energy.sum(1).argsort(dim=0, descending=True, stable=True)
    within = energy.argsort(dim=1, descending=True, stable=True)
    return (blocks[:, None] * BLOCK_COLUMNS + within[blocks]).reshape(-1)
