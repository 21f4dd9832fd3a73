"""Checks of what users pass, with the value and the limit in every message."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LEAST_TEMPERATURE = 1e-37  # a smaller one is greedy: a 32-bit float cannot hold what logits would be divided to
MAX_TEMPERATURE = 100


def as_float32(value: float) -> float:
    """The number that the native library gets: the nearest 32-bit float, infinite beyond the largest one."""
    try:
        return ctypes.c_float(float(value)).value
    except OverflowError:  # an integer that no float holds
        return math.inf if value > 0 else -math.inf


def is_greedy(temperature: float) -> bool:
    """Whether nothing is drawn at this temperature."""
    return as_float32(temperature) < as_float32(LEAST_TEMPERATURE)


def prompt_array(ids: Sequence[int], num_ids: int) -> NDArray[np.int32]:
    """The prompt as the engine takes it; InvalidArgumentError if it is empty or names an id outside the vocabulary."""
    array = np.asarray(ids)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        shown = "empty" if array.size == 0 else f"{ids!r:.40}"
        raise InvalidArgumentError(f"the prompt is {shown}, must be a non-empty text or sequence of token ids")
    outside = np.flatnonzero((array < 0) | (array >= num_ids))
    if outside.size:
        raise InvalidArgumentError(f"token {outside[0]} has the id {array[outside[0]]}, must be in 0..{num_ids - 1}")
    return array.astype(np.int32)


def check_int(name: str, value: int, low: int, high: int) -> None:
    """InvalidArgumentError unless ``value`` is an integer, Python's or numpy's but no truth value, in the range."""
    is_int = isinstance(value, Integral) and not isinstance(value, bool)
    require(name, value, is_int and low <= value <= high, f"an integer in {low}..{high}")


def check_flag(name: str, value: object) -> None:
    """InvalidArgumentError unless ``value`` is True or False: "no" would count as true."""
    require(name, value, isinstance(value, (bool, np.bool_)), "True or False")


def check_sequence(name: str, value: object, what: str) -> None:
    """InvalidArgumentError unless ``value`` is a sequence, and no text."""
    is_sequence = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
    require(name, value, is_sequence, f"a sequence of {what}")


def require_number(name: str, value: float, limit: str, is_valid: Callable[[float], bool]) -> None:
    """InvalidArgumentError unless ``value`` is a number, Python's or numpy's but no truth value, and valid.

    What is checked is what is used: the nearest 32-bit float.
    """
    require(name, value, isinstance(value, Real) and not isinstance(value, bool), limit)
    used = as_float32(value)
    if not is_valid(used):
        note = f" (it is used as the 32-bit float {used!r})" if used != value and is_valid(value) else ""
        raise InvalidArgumentError(f"{name} is {value!r}, must be {limit}{note}")


def require(name: str, value: object, valid: bool, limit: str) -> None:  # noqa: FBT001 - named at each call
    """InvalidArgumentError with the option, its value and its limit unless it is valid."""
    if not valid:
        raise InvalidArgumentError(f"{name} is {value!r}, must be {limit}")
