"""Checks of what users pass, with the value and the limit in every message."""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import InvalidArgumentError, limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_MOST_SHOWN = 200
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def as_float32(value: float) -> float:
    """The number that the native library gets: the nearest 32-bit float, infinite beyond the largest one."""
    try:
        return ctypes.c_float(float(value)).value
    except OverflowError:  # an integer that no float holds
        return math.inf if value > 0 else -math.inf


def is_greedy(temperature: float) -> bool:
    """Whether nothing is drawn at this temperature."""
    return as_float32(temperature) < limits.LEAST_TEMPERATURE


def prompt_array(ids: Sequence[int], num_ids: int) -> NDArray[np.int32]:
    """The prompt as the engine takes it; InvalidArgumentError if it is empty or names an id outside the vocabulary."""
    is_sequence = isinstance(ids, (Sequence, np.ndarray)) and not isinstance(ids, (str, bytes))
    require("the prompt", ids, is_sequence, "a non-empty text or sequence of token ids")
    try:
        array = np.asarray(ids)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # rows of several lengths, and the like
        raise InvalidArgumentError(f"the prompt is {shown(ids)}, must be a sequence of token ids") from error
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        found = "empty" if array.size == 0 else shown(ids)
        raise InvalidArgumentError(f"the prompt is {found}, must be a non-empty text or sequence of token ids")
    outside = np.flatnonzero((array < 0) | (array >= num_ids))
    if outside.size:
        raise InvalidArgumentError(f"token {outside[0]} has the id {array[outside[0]]}, must be in 0..{num_ids - 1}")
    return array.astype(np.int32)


def check_int(name: str, value: int, low: int, high: int) -> None:
    """InvalidArgumentError unless ``value`` is an integer, Python's or numpy's but no truth value, in the range."""
    is_int = isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))
    require(name, value, is_int and low <= value <= high, f"an integer in {low}..{high}")


def check_flag(name: str, value: object) -> None:
    """InvalidArgumentError unless ``value`` is True or False: "no" would count as true."""
    require(name, value, isinstance(value, (bool, np.bool_)), "True or False")


def check_encodable(name: str, text: str) -> None:
    """InvalidArgumentError if a text has half of a surrogate pair, which an undecodable byte becomes in argv."""
    lone = None if text.isascii() else _LONE_SURROGATE.search(text)
    if lone is not None:
        raise InvalidArgumentError(
            f"character {lone.start()} of {name} is {lone.group()!r}, half of a surrogate pair: give UTF-8"
        )


def check_sequence(name: str, value: object, what: str) -> None:
    """InvalidArgumentError unless ``value`` is a sequence, and no text."""
    is_sequence = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim > 0)
    is_sequence = is_sequence and not isinstance(value, (str, bytes, bytearray, memoryview))
    require(name, value, is_sequence, f"a sequence of {what}")


def require_number(name: str, value: float, limit: str, is_valid: Callable[[float], bool]) -> None:
    """InvalidArgumentError unless ``value`` is a number, Python's or numpy's but no truth value, and valid.

    What is checked is what is used: the nearest 32-bit float.
    """
    require(name, value, isinstance(value, Real) and not isinstance(value, (bool, np.bool_)), limit)
    used = as_float32(value)
    if not is_valid(used):
        note = f" (it is used as the 32-bit float {used!r})" if used != value and is_valid(value) else ""
        raise InvalidArgumentError(f"{name} is {shown(value)}, must be {limit}{note}")


def require(name: str, value: object, valid: bool, limit: str) -> None:  # noqa: FBT001 - named at each call
    """InvalidArgumentError with the option, its value and its limit unless it is valid."""
    if not valid:
        raise InvalidArgumentError(f"{name} is {shown(value)}, must be {limit}")


def check_path(name: str, value: object, what: str) -> Path:
    """InvalidArgumentError unless ``value`` is a path: a string or a Path that a file system can have."""
    require(name, value, isinstance(value, (str, Path)), f"the path of {what}")
    path = Path(value)  # type: ignore[arg-type]  # as was just checked
    try:
        is_one = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_one = False
    require(name, value, is_one, f"the path of {what}, which a file system can have")
    return path


def shown(value: object) -> str:
    """A value as messages show it, shortened; one that cannot be shown is named by its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - whatever it is, the message is about something else
        return f"of type {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
