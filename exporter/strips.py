"""Work on a matrix in strips of rows: small enough for a core's cache, on several threads.

Knows nothing about what is done: rows must not depend on each other, so that the result is that of all rows at once.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from .contract import TILE_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Result = TypeVar("Result")
_STRIP_ELEMENTS = 1 << 17  # half a MiB in f32
_UNIT = 2 * TILE_ROWS  # strips begin at whole pairs of interleaved tiles
_SPANS_AHEAD = 64  # whose results may wait to be taken
_MOST_THREADS = 8  # beyond, they wait for Python's lock


def row_spans(num_rows: int, height: int) -> list[tuple[int, int]]:
    """Start and end of spans of `height` rows, the last one perhaps of fewer, that are all rows together."""
    return [(start, min(start + height, num_rows)) for start in range(0, num_rows, height)]


def in_strips(work: Callable[[int, int], Result], num_rows: int, num_columns: int) -> Iterator[Result]:
    """Calls work(start, end) for all strips of a matrix, on several threads; gives the results in the order of rows."""
    height = max(_STRIP_ELEMENTS // max(num_columns, 1) // _UNIT, 1) * _UNIT
    yield from in_spans(work, row_spans(num_rows, height))


def in_spans(work: Callable[[int, int], Result], spans: Sequence[tuple[int, int]]) -> Iterator[Result]:
    """The same for rows that the caller has cut."""
    num_threads = min(len(spans), os.cpu_count() or 1, _MOST_THREADS)
    if num_threads < 2:  # noqa: PLR2004 - one needs no others
        yield from (work(*span) for span in spans)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        for first in range(0, len(spans), _SPANS_AHEAD):
            starts, ends = zip(*spans[first : first + _SPANS_AHEAD], strict=True)
            yield from pool.map(work, starts, ends)


def fill_in_strips(work: Callable[[int, int], None], num_rows: int, num_columns: int) -> None:
    """The same for work that puts its results where they belong."""
    for _ in in_strips(work, num_rows, num_columns):
        pass
