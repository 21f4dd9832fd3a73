"""Checks of what users pass, with the value and the limit in every message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

MAX_TEMPERATURE = 100
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


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


def check_encodable(name: str, text: str) -> None:
    """InvalidArgumentError if a text has half of a surrogate pair, which an undecodable byte becomes in argv."""
    lone = _LONE_SURROGATE.search(text)
    if lone is not None:
        raise InvalidArgumentError(
            f"character {lone.start()} of {name} is {lone.group()!r}, half of a surrogate pair: give UTF-8"
        )


def check_sequence(name: str, value: object, what: str) -> None:
    """InvalidArgumentError unless ``value`` is a sequence, and no text."""
    is_sequence = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
    require(name, value, is_sequence, f"a sequence of {what}")


def require_number(name: str, value: float, limit: str, is_valid: Callable[[float], bool]) -> None:
    """InvalidArgumentError unless ``value`` is a number, Python's or numpy's but no truth value, and valid."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    require(name, value, is_number and is_valid(value), limit)


def require(name: str, value: object, valid: bool, limit: str) -> None:  # noqa: FBT001 - named at each call
    """InvalidArgumentError with the option, its value and its limit unless it is valid."""
    if not valid:
        raise InvalidArgumentError(f"{name} is {value!r}, must be {limit}")
