"""What a chat template may use up: steps, time, and text. A bundle brings the template, so that it is not trusted.

Every loop's turn, call, filter and growing operator counts here; what an operation would make is bounded before it is
made, so that no single one takes long, and Ctrl-C is answered between two of them.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import jinja2

from .messages import Fields

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_SECONDS = 1.5
MOST_STEPS = 2_000_000
MOST_LENGTH = 2**21
"""Characters of any one value that a template makes; a conversation's own length counts four times on top."""
MOST_PARTS = 2**17
"""Of any one nested value, as often as they are in it; the conversation's own come on top."""
MOST_TOTAL = 2**26
"""Of all values together, as memory; a conversation's own length counts 64 times on top."""
MOST_DEPTH = 64
MOST_BITS = 2**12
MOST_WIDTH = 999
"""Of what a format pads to."""
_WIDE = re.compile(r"%[^a-zA-Z%]*(?:\d{4}|\*)")
_WIDE_FIELD = re.compile(r"\{[^{}]*:[^{}]*(?:\{|\d{4})")


class TemplateLimitError(jinja2.TemplateError):
    """A template asks for more than a chat template needs."""


class Meter:
    """What one rendering has used, of the thread that renders."""

    def __init__(self, length: int) -> None:
        """``length`` is the conversation's."""
        self._deadline = time.monotonic() + MOST_SECONDS
        self._steps_left = MOST_STEPS
        self._most_length = MOST_LENGTH + 4 * length
        self._most_parts = MOST_PARTS + 4 * length
        self._total_left = MOST_TOTAL + 64 * length

    def step(self) -> None:
        """Count a turn of a loop, a call or an operation."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TemplateLimitError(f"it takes more than {MOST_STEPS} steps")
        if time.monotonic() > self._deadline:
            raise TemplateLimitError(f"it takes longer than {MOST_SECONDS} seconds")

    def allow(self, length: int) -> None:
        """Refuse a value that would be so long, and count it."""
        if length > self._most_length:
            raise TemplateLimitError(f"it makes a value of {length} characters or parts, more than {self._most_length}")
        self._total_left -= length
        if self._total_left < 0:
            raise TemplateLimitError("all that it makes takes too much memory")

    def weigh(self, value: object) -> None:
        """Count a value that was made; what is in it is there already, but may be shown as often as it is in it."""
        if isinstance(value, str):
            self.allow(len(value))
        elif isinstance(value, (list, tuple, dict)):
            self.weight(value)
            self.allow(len(value))

    def weight(self, value: object) -> int:
        """Characters and parts of a value when it is shown, which must be bounded."""
        total = num_parts = 0
        rest: list[tuple[object, int]] = [(value, 0)]
        while rest:
            item, depth = rest.pop()
            total += _own_weight(item)
            num_parts += 1
            if depth > MOST_DEPTH:
                raise TemplateLimitError(f"it nests values deeper than {MOST_DEPTH}")
            if total > self._most_length or num_parts + len(rest) > self._most_parts:
                raise TemplateLimitError("it nests values that are too long to show")
            if isinstance(item, dict) and not isinstance(item, Fields):
                rest += [(part, depth + 1) for pair in item.items() for part in pair]
            elif isinstance(item, (list, tuple)):
                rest += [(part, depth + 1) for part in item]
        return total


def _own_weight(item: object) -> int:
    if isinstance(item, Fields):
        return item.weight
    return len(item) if isinstance(item, (str, bytes)) else 1


class Meters(threading.local):
    """The meter of what this thread renders."""

    current: Meter | None = None

    @contextlib.contextmanager
    def running(self, length: int) -> Iterator[None]:
        """Bound what this thread renders, or compiles, in the block."""
        before, self.current = self.current, Meter(length)
        try:
            yield
        finally:
            self.current = before

    def meter(self) -> Meter:
        """The current one, after a step."""
        meter = self.current
        if meter is None:
            raise TemplateLimitError("a part of it runs after it was rendered")
        meter.step()
        return meter


def add(meter: Meter, left: Any, right: Any) -> Any:
    """``left + right``; sequences and texts are counted by what they make."""
    if isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
        result = left + right  # type: ignore[operator]  # as the template says; a TypeError is its own
        meter.weigh(result)
        return result
    return _number(left + right)


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    """``left * right``, of which one may be a text or a list."""
    for value, times in ((left, right), (right, left)):
        if isinstance(value, (str, list, tuple, bytes)) and isinstance(times, int):
            each = len(value) if isinstance(value, (str, bytes)) else meter.weight(value)
            meter.allow(each * max(0, times))
    return _number(left * right)


def power(left: Any, right: Any) -> Any:
    """``left ** right``."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > MOST_BITS:
        raise TemplateLimitError(f"it computes {left.bit_length()}-bit numbers to the power of {right!r:.20}")
    return _number(left**right)


def modulo(meter: Meter, left: Any, right: Any) -> Any:
    """``left % right``: of numbers, or a format."""
    if isinstance(left, (str, bytes)):
        if not isinstance(left, str) or _WIDE.search(left):
            raise TemplateLimitError(f"it formats with {left!r:.40}, which pads to more than {MOST_WIDTH} characters")
        meter.allow(MOST_WIDTH * left.count("%") + len(left) + meter.weight(right))
    return left % right


def check_format(meter: Meter, text: str, values: object) -> None:
    """Refuse what ``text.format()`` would make too long."""
    if _WIDE_FIELD.search(text):
        raise TemplateLimitError(f"it formats with {text!r:.40}, which pads to more than {MOST_WIDTH} characters")
    meter.allow((MOST_WIDTH + meter.weight(values)) * text.count("{") + len(text))


def _number(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise TemplateLimitError(f"it computes numbers of more than {MOST_BITS} bits")
    return value
