"""The fields of a request's JSON: each is taken once and its type checked; what nobody takes is refused by name."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from pilotfish.runtime.option_checks import shown

from .errors import invalid

if TYPE_CHECKING:
    from collections.abc import Collection


def parse_object(body: bytes) -> dict[str, Any]:
    """A request's body.

    Raises:
        ApiError: it is no UTF-8, no JSON, or no object.
    """
    try:
        content = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8: byte {error.start} is {error.reason}", code="invalid_utf8") from error
    except RecursionError as error:
        raise invalid("the body is nested too deep for JSON of a request", code="invalid_json") from error
    except ValueError as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(content, dict):
        raise invalid(f"the body is {shown(content)}, must be a JSON object", code="invalid_json")
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


class Fields:
    """An object's fields. Null means the same as a field that is not there, as in the protocol."""

    def __init__(self, content: object, place: str = "") -> None:
        """``place`` is what messages call the object; empty: the request itself.

        Raises:
            ApiError: it is no object.
        """
        if not isinstance(content, dict):
            raise invalid(f"{place} is {shown(content)}, must be an object", param=place)
        self._left: dict[str, Any] = dict(content)
        self._place = place

    def take(self, name: str) -> Any:
        """A field of any type; None if it is not there."""
        return self._left.pop(name, None)

    def flag(self, name: str) -> bool:
        """True or false; false if it is not there."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise self.refusal(name, value, "true or false")
        return bool(value)

    def integer(self, name: str, low: int, high: int) -> int | None:
        """An integer within limits; a number with a fraction of 0, as 1.0, is one too."""
        value = self.take(name)
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
            raise self.refusal(name, value, f"an integer in {low}..{high}")
        return value

    def text(self, name: str) -> str | None:
        """A text."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self.refusal(name, value, "a text")
        return value

    def objects(self, name: str) -> list[Any] | None:
        """A list, of anything."""
        value = self.take(name)
        if value is not None and not isinstance(value, list):
            raise self.refusal(name, value, "a list")
        return value

    def mapping(self, name: str) -> dict[str, Any] | None:
        """An object, of anything."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise self.refusal(name, value, "an object")
        return value

    def refusal(self, name: str, value: object, limit: str) -> Exception:
        """The error of a value that is wrong."""
        return invalid(f"{self._at(name)} is {shown(value)}, must be {limit}", param=self._at(name))

    def finish(self, ignored: Collection[str] = ()) -> list[str]:
        """The names of the ``ignored`` fields that are there and say something.

        Raises:
            ApiError: there is one that nobody took, and that is not ignored either.
        """
        left = {name for name, value in self._left.items() if value is not None}
        unknown = sorted(left.difference(ignored))
        if unknown:
            name = self._at(unknown[0])
            raise invalid(
                f"{shown(name)} is not a field that this server knows: leave it out",
                param=name,
                code="unknown_parameter",
            )
        return sorted(self._at(name) for name in left)

    def _at(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name
