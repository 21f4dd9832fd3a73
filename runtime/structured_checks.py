"""What users pass for structured output, checked before llguidance sees it, and what it says put in our words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pilotfish.bindings import InvalidArgumentError

from .option_checks import check_encodable, require

MOST_REGEX_CHARACTERS = 20_000
MOST_GRAMMAR_CHARACTERS = 200_000
MOST_GRAMMAR_RULES = 1_000
MOST_CONJUNCTIONS = 8  # what they are matched by grows exponentially with their number
MOST_SCHEMA_VALUES = 20_000
MOST_MULTIPLE = 10_000
MOST_SCHEMA_LEVELS = 64
MOST_SCHEMA_CHARACTERS = 1_000_000
MOST_MESSAGE_CHARACTERS = 300

# Strings, expressions and comments, in which the signs of a grammar mean nothing.
_QUOTED = re.compile(r'"(\\.|[^"\\\n])*"|/(\\.|[^/\\\n])+/|(//|#)[^\n]*')
_RULE = re.compile(r"^[ \t]*[!?_a-zA-Z][\w\-]*(\[[^\]\n]*\])?(::\S+)?[ \t]*:", re.MULTILINE)
_MOST_DIGITS = 40
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**64 - 1
# llguidance shows the place of an error below it, and after it the state of its parser.
_EXCERPT = re.compile(r"^\s*(\d+ \||\^).*$", re.MULTILINE)
_STATE = re.compile(r"<(state|non-verbose|backtrace)\b.*", re.DOTALL)
_ADVICE = (
    (
        "oneOf constraints are not supported.",
        "oneOf is supported only where no value fits two of its options: use anyOf",
    ),
    ("lexer precomputation failed", "it takes too long to compile: make its expressions and repetitions smaller"),
    ("too many expressions constructed", "its expressions and repetitions are too large: make them smaller"),
    ("too many states", "its expressions and repetitions are too large: make them smaller"),
    ("initial lexer configuration (grammar) too big", "it is too large: make it smaller"),
    ("fuel exhausted", "it is too large: make it smaller"),
    ("recursion limit exceeded", f"it is nested deeper than {MOST_SCHEMA_LEVELS} levels"),
)


def reason_of(message: object) -> str:
    """What llguidance says in one line, without its inner state and with remedies that exist here."""
    text = _EXCERPT.sub("", _STATE.sub("", str(message)))
    for found, advice in _ADVICE:
        if found in text:
            return advice
    return " ".join(text.split())[:MOST_MESSAGE_CHARACTERS]


def check_regex(pattern: str) -> None:
    """InvalidArgumentError for half a surrogate pair, or an expression that is too long."""
    _check_text("regex", pattern, MOST_REGEX_CHARACTERS)


def check_grammar(lark: str) -> None:
    """InvalidArgumentError for half a surrogate pair, or a grammar that is too long or has too many rules."""
    _check_text("grammar", lark, MOST_GRAMMAR_CHARACTERS)
    bare = _QUOTED.sub('""', lark)
    if "temperature" in bare:
        raise InvalidArgumentError("grammar sets a temperature: the option temperature is the whole generation's")
    for number, what, most in (
        (len(_RULE.findall(bare)), "rules", MOST_GRAMMAR_RULES),
        (bare.count("&") + bare.count("~"), "& and ~", MOST_CONJUNCTIONS),
    ):
        if number > most:
            raise InvalidArgumentError(f"grammar has {number} {what}, must have at most {most}")


def schema_text(schema: Mapping[str, Any] | str) -> str:
    """A JSON schema, a mapping or its text, as JSON that llguidance reads as it is meant.

    Raises:
        InvalidArgumentError: it is no JSON object, or too large.
    """
    value = _parsed(schema) if isinstance(schema, str) else schema
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"json_schema is {value!r:.60}, must be a JSON object")
    if "x-guidance" in value:
        raise InvalidArgumentError(
            "json_schema has the key x-guidance, options of llguidance that are set here: remove it"
        )
    text = json.dumps(_Copy().of(value, "json_schema", 0))
    if len(text) > MOST_SCHEMA_CHARACTERS:
        raise InvalidArgumentError(
            f"json_schema has {len(text)} characters, must have at most {MOST_SCHEMA_CHARACTERS}"
        )
    return text


def _check_text(name: str, text: str, most: int) -> None:
    check_encodable(name, text)
    if len(text) > most:
        raise InvalidArgumentError(f"{name} has {len(text)} characters, must have at most {most}")


def _parsed(text: str) -> Any:
    check_encodable("json_schema", text)
    if len(text) > MOST_SCHEMA_CHARACTERS:
        raise InvalidArgumentError(
            f"json_schema has {len(text)} characters, must have at most {MOST_SCHEMA_CHARACTERS}"
        )
    try:
        return json.loads(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"), parse_int=_integer)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise InvalidArgumentError(f"json_schema is no JSON schema: {error}") from error


def _too_deep() -> InvalidArgumentError:
    return InvalidArgumentError(f"json_schema is nested deeper than {MOST_SCHEMA_LEVELS} levels, or contains itself")


class _Copy:
    """Copies a schema into plain dictionaries and lists, and counts its values, and what allOf may combine."""

    def __init__(self) -> None:
        self._num_values = 0
        self._num_patterns = 0
        self._num_branches = 0  # of allOf

    def of(self, value: Any, place: str, level: int) -> Any:
        self._num_values += 1
        if self._num_values > MOST_SCHEMA_VALUES:
            raise InvalidArgumentError(f"json_schema has more than {MOST_SCHEMA_VALUES} values: make it smaller")
        if level > MOST_SCHEMA_LEVELS:
            raise _too_deep()
        if isinstance(value, Mapping):
            self._check_keys(value, place)
            return {_key(key, place): self.of(inner, f"{place}.{key}", level + 1) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.of(inner, f"{place}[{index}]", level + 1) for index, inner in enumerate(value)]
        return _leaf(value, place)

    def _check_keys(self, value: Mapping[str, Any], place: str) -> None:
        self._num_patterns += ("pattern" in value) + ("format" in value)
        branches = value.get("allOf")
        self._num_branches += len(branches) if isinstance(branches, (list, tuple)) and len(branches) > 1 else 0
        if min(self._num_patterns, self._num_branches) > MOST_CONJUNCTIONS:
            raise InvalidArgumentError(
                f"json_schema has more than {MOST_CONJUNCTIONS} branches of allOf, and more than {MOST_CONJUNCTIONS} "
                "patterns and formats that they may combine: make it smaller"
            )
        multiple = value.get("multipleOf")
        if isinstance(multiple, (int, float)) and 0 < multiple < math.inf:
            is_small = _without_point(multiple) <= MOST_MULTIPLE
            limit = f"at most {MOST_MULTIPLE}, also without its decimal point"
            require(f"{place:.100}.multipleOf", multiple, is_small, limit)


def _without_point(number: float) -> int:
    """0.25 -> 25."""
    digits = Decimal(str(number))
    while digits != digits.to_integral_value():
        digits *= 10
    return int(digits)


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"the integer {digits[:_MOST_DIGITS]}... has {len(digits)} digits")
    return int(digits)


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise InvalidArgumentError(f"{place} has the key {key!r:.40}, must be a string")
    check_encodable(f"a key of {place:.100}", key)
    return key


def _leaf(value: Any, place: str) -> Any:
    if isinstance(value, str):
        check_encodable(f"{place:.100}", value)
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not _LEAST_INTEGER <= value <= _MOST_INTEGER:
            raise InvalidArgumentError(
                f"{place:.100} is an integer of {value.bit_length()} bits, must be in -2**63..2**64 - 1"
            )
        return value
    is_number = isinstance(value, float) and math.isfinite(value)
    require(f"{place:.100}", value, is_number, "an object, array, string, finite number, truth value or None")
    return value
