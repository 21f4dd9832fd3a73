"""Calibrated rounding: what rounding one column changes in a matrix' output, later columns make up for.

After GPTQ (Frantar et al., arXiv:2210.17323). Columns are rounded block by block, the blocks with most energy first, so
that a block's scale is chosen for the weights that are left when its turn comes. What is aimed at are the outputs that
the checkpoint's own layers would have led to (as in GPTAQ, Li et al., arXiv:2504.02692).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pilotfish.exporter.contract import BLOCK_COLUMNS
from pilotfish.exporter.quantise import Quantised, joined, quantise
from pilotfish.exporter.strips import in_spans, row_spans

from .grid import fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .grid import Grid
    from .inputs import Factor, Inputs

Array = np.ndarray[Any, np.dtype[Any]]
_PANEL_BLOCKS = 4  # after which the errors reach the columns behind
_ROWS = 1024  # of a matrix that a thread rounds at once


@dataclass(frozen=True, slots=True)
class Rounded:
    """A matrix in integers, beside the same with each weight rounded to the nearest value."""

    quantised: Quantised
    nearest: Quantised  # the very same object where calibration has not made it better

    @property
    def is_calibrated(self) -> bool:
        """Whether it is another matrix than nearest rounding's."""
        return self.quantised is not self.nearest


def round_rows(rows: Array, inputs: Inputs, format_name: str) -> Rounded:
    """Rounds f32 [rows, columns] to "int4" or "int4_asym" for inputs such as these.

    A matrix whose outputs are no nearer to what they should be, on inputs that were not read, keeps nearest rounding.
    """
    nearest = quantise(rows, format_name)
    if inputs.factor is None:
        return Rounded(nearest, nearest)
    exact = torch.from_numpy(np.ascontiguousarray(rows))
    aim = inputs.aim(exact)
    with _one_thread_each():
        work = partial(_compensated, aim, inputs.factor, format_name)
        found = joined(list(in_spans(work, row_spans(len(aim), _ROWS))))
    if found is None:
        raise ValueError("a matrix without rows")
    errors = [inputs.held_error(exact, torch.from_numpy(each.dequantise())) for each in (found, nearest)]
    return Rounded(found if errors[0] < errors[1] else nearest, nearest)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Many short operations: torch's threads would wait for each other after every one, on a busy machine for long."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _compensated(rows: torch.Tensor, factor: Factor, format_name: str, start: int, end: int) -> Quantised:
    """The rows from `start` to `end` alone."""
    order, upper = factor.order, factor.upper
    left = rows[start:end].T[order]  # [columns, rows], which is worked on
    num_columns, num_rows = left.shape
    codes = torch.empty(num_columns, num_rows)
    grids: list[Grid] = []
    for panel_start in range(0, num_columns, _PANEL_BLOCKS * BLOCK_COLUMNS):
        panel_end = min(panel_start + _PANEL_BLOCKS * BLOCK_COLUMNS, num_columns)
        errors = torch.empty(panel_end - panel_start, num_rows)
        for first in range(panel_start, panel_end, BLOCK_COLUMNS):
            block = slice(first, first + BLOCK_COLUMNS)
            grid = fit(left[block], upper.diagonal()[block] ** -2, format_name)
            grids.append(grid)
            for column in range(first, first + BLOCK_COLUMNS):
                codes[column] = grid.codes(left[column])
                error = errors[column - panel_start]
                torch.sub(left[column], grid.values(codes[column]), out=error)
                error /= upper[column, column]
                left[column + 1 : panel_end].addr_(upper[column, column + 1 : panel_end], error, alpha=-1)
        left[panel_end:].addmm_(upper[panel_start:panel_end, panel_end:].T, errors, alpha=-1)
    return _in_order(codes, grids, order)


def _in_order(codes: torch.Tensor, grids: list[Grid], order: torch.Tensor) -> Quantised:
    """Back in the order of columns, and as the packed formats have it."""
    found = torch.empty(codes.shape[1], codes.shape[0], dtype=torch.int8)
    found[:, order] = codes.T.to(torch.int8)
    place = (order[::BLOCK_COLUMNS] // BLOCK_COLUMNS).argsort()

    def numbers(values: list[torch.Tensor]) -> Array:
        return np.asarray(torch.stack(values, 1)[:, place].half().numpy())

    offsets = [grid.offset for grid in grids if grid.offset is not None]
    return Quantised(found.numpy(), numbers([grid.scale for grid in grids]), numbers(offsets) if offsets else None)
