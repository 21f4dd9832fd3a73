"""Work on a matrix in strips of rows: small enough for a core's cache, on as many threads as torch uses.

Knows nothing about what is done: rows must not depend on each other, so that the result is that of all rows at once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch

from .contract import TILE_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Result = TypeVar("Result")
_STRIP_ELEMENTS = 1 << 17  # half a MiB in f32
_UNIT = 2 * TILE_ROWS  # strips begin at whole pairs of interleaved tiles
_STRIPS_AHEAD = 64  # whose results may wait to be taken


def in_strips(work: Callable[[int, int], Result], num_rows: int, num_columns: int) -> Iterator[Result]:
    """Calls work(start, end) for all strips of a matrix, on several threads; gives the results in the order of rows."""
    height = max(_STRIP_ELEMENTS // max(num_columns, 1) // _UNIT, 1) * _UNIT
    strips = [(start, min(start + height, num_rows)) for start in range(0, num_rows, height)]
    if len(strips) < 2 or torch.get_num_threads() == 1:  # noqa: PLR2004 - one strip needs no threads
        yield from (work(*strip) for strip in strips)
        return
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for first in range(0, len(strips), _STRIPS_AHEAD):
            starts, ends = zip(*strips[first : first + _STRIPS_AHEAD], strict=True)
            yield from pool.map(work, starts, ends)


def fill_in_strips(work: Callable[[int, int], None], num_rows: int, num_columns: int) -> None:
    """The same for work that puts its results where they belong."""
    for _ in in_strips(work, num_rows, num_columns):
        pass
