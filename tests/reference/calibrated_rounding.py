"""Calibrated rounding as its definition has it: one column after another, the rest solved for anew each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pilotfish.exporter.calibration.grid import fit

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 32


def round_one_by_one(rows: Array, hessian: Array, order: Array, format_name: str) -> Array:
    """The values f64 [rows, columns] that columns get in this order.

    After a column is rounded, the columns that are left take the values that change the outputs least, given those that
    have been rounded. hessian: shrunken, f64 [columns, columns].
    """
    exact = rows.astype(np.float64)
    left, done = exact.copy(), np.zeros_like(exact)
    for index, column in enumerate(order):
        if index % BLOCK == 0:
            block = order[index : index + BLOCK]
            columns = torch.from_numpy(left[:, block].T.astype(np.float32).copy())
            # What rounding a column costs once all behind it have made up for it.
            importance = [_importance(hessian, order[at:]) for at in range(index, index + BLOCK)]
            grid = fit(columns, torch.tensor(importance, dtype=torch.float32), format_name)
        value = torch.from_numpy(left[:, column].astype(np.float32))
        done[:, column] = grid.values(grid.codes(value)).numpy()
        behind = order[index + 1 :]
        if len(behind):
            # Minimises the error of outputs over the columns behind, all others fixed.
            before = order[: index + 1]
            pull = hessian[np.ix_(behind, before)] @ (exact - done)[:, before].T
            shift = np.linalg.solve(hessian[np.ix_(behind, behind)], pull)
            left[:, behind] = exact[:, behind] + shift.T
    return done


def _importance(hessian: Array, rest: Array) -> float:
    """By how much an error of the first of these columns counts, if the others make up for it."""
    return float(1 / np.linalg.inv(hessian[np.ix_(rest, rest)])[0, 0])


def shrunken(inputs: Array) -> Array:
    """Mean of x x^T over the rows of inputs, f64, moved towards its diagonal as far as the rows are few."""
    rows, columns = inputs.shape
    exact = inputs.astype(np.float64)
    matrix = exact.T @ exact / rows
    diagonal = np.diag(matrix)
    share = max(columns / (columns + rows), 0.01)
    return np.asarray((1 - share) * matrix + np.diag(share * diagonal + 0.01 * diagonal.mean()))
