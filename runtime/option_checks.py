"""Checks of what users pass, with the value and the limit in every message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


def prompt_array(ids: Sequence[int], num_ids: int) -> NDArray[np.int32]:
    """The prompt as the engine takes it; InvalidArgumentError if it is empty or names an id outside the vocabulary."""
    array = np.asarray(ids)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidArgumentError(f"the prompt is {ids!r:.40}, must be a non-empty text or sequence of token ids")
    outside = np.flatnonzero((array < 0) | (array >= num_ids))
    if outside.size:
        raise InvalidArgumentError(f"prompt token {outside[0]} is {array[outside[0]]}, must be in 0..{num_ids - 1}")
    return array.astype(np.int32)


def check_int(name: str, value: int, low: int, high: int) -> None:
    """InvalidArgumentError unless ``value`` is an integer in the range."""
    require(name, value, isinstance(value, int) and low <= value <= high, f"an integer in {low}..{high}")


def require_number(name: str, value: float, limit: str, is_valid: Callable[[float], bool]) -> None:
    """InvalidArgumentError unless ``value`` is a number and valid."""
    require(name, value, isinstance(value, (int, float)) and is_valid(value), limit)


def require(name: str, value: object, valid: bool, limit: str) -> None:  # noqa: FBT001 - named at each call
    """InvalidArgumentError with the option, its value and its limit unless it is valid."""
    if not valid:
        raise InvalidArgumentError(f"{name} is {value!r}, must be {limit}")
