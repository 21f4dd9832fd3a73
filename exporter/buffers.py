"""Arrays in memory that is used again: on fresh pages a large matrix takes longer to get than to fill.

Knows nothing about what is in the arrays.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_MOST_ELEMENTS = 1 << 26  # that are kept: 256 MiB; larger arrays are few, and would be held for nothing


class Buffers:
    """Gives arrays f32 whose memory is that of an earlier one that nobody holds any more."""

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._own_references: int | None = None

    def empty(self, shape: tuple[int, ...]) -> Array:
        """An array whose values are whatever was there. It stays as it is for as long as it, or a view of it, lives."""
        count = math.prod(shape)
        if count > _MOST_ELEMENTS:
            return np.empty(shape, np.float32)
        free = [index for index in range(len(self._kept)) if self._references(index) == self._own_references]
        found = next((index for index in free if self._kept[index].size >= count), None)
        if found is None:
            for index in reversed(free):  # all of them too small
                del self._kept[index]
            found = len(self._kept)
            self._kept.append(np.empty(count, np.float32))
            self._own_references = self._references(found)
        return self._kept[found][:count].reshape(shape)

    def _references(self, index: int) -> int:
        """To a buffer: as many as this Python counts while it is asked for, and one for each view that lives."""
        return sys.getrefcount(self._kept[index])
