"""Calls of functions in a model's answer: which form a chat template asks for, and what is a call as text arrives.

Knows the forms of Hermes and Qwen, Llama 3, Mistral and Granite. What only looks like a call stays text.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .stop_strings import longest_beginning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_ID_LETTERS = string.ascii_letters + string.digits
_NUM_ID_LETTERS = 9  # templates of Mistral's accept no other number
_BETWEEN_CALLS = re.compile(r"[\s;,]*")


def _new_id() -> str:
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(_NUM_ID_LETTERS))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model calls."""

    name: str
    arguments: str
    """A JSON object."""
    id: str = field(default_factory=_new_id)
    """9 letters and digits, drawn anew."""


@dataclass(frozen=True, slots=True)
class ToolCallForm:
    """How a family of models writes calls."""

    name: str
    begin: str
    """What stands before calls, as text or as a special token."""
    end: str = ""
    """What stands behind one; empty: calls go on to the end of the answer."""
    is_bare: bool = False
    """An answer that begins with "{" is calls without ``begin``."""


HERMES = ToolCallForm("Hermes", "<tool_call>", "</tool_call>")
MISTRAL = ToolCallForm("Mistral", "[TOOL_CALLS]")
GRANITE = ToolCallForm("Granite", "<|tool_call|>")
LLAMA3 = ToolCallForm("Llama 3", "<|python_tag|>", is_bare=True)
WHOLE = ToolCallForm("a call alone", "", is_bare=True)
"""Of answers that a schema of called_schema() made calls."""


def form_of(template: str | None) -> ToolCallForm | None:
    """The form in which a model answers that was made for a chat template; None: it names none that is known."""
    source = template or ""
    if "[ARGS]" in source:
        return None
    for form in (HERMES, MISTRAL, GRANITE):
        if form.begin in source:
            return form
    is_llama = LLAMA3.begin in source or ("ipython" in source and '"parameters"' in source)
    return LLAMA3 if is_llama else None


def called_schema(functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A JSON schema of a call of one of these functions, each with a name and perhaps parameters, a schema."""
    parameters = {str(index): _moved(each.get("parameters") or {}, index) for index, each in enumerate(functions)}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": each["name"]}, "arguments": {"$ref": f"#/$defs/{index}"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for index, each in enumerate(functions)
    ]
    return {"$defs": parameters, **(calls[0] if len(calls) == 1 else {"anyOf": calls})}


def _moved(parameters: Mapping[str, Any], index: int) -> Any:
    """A schema of an object whose references begin where it will stand."""

    def with_references(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: f"#/$defs/{index}{inner[1:]}" if _is_reference(key, inner) else with_references(inner)
                for key, inner in value.items()
            }
        return [with_references(part) for part in value] if isinstance(value, list) else value

    schema = dict(parameters) if parameters else {"properties": {}, "additionalProperties": False}
    return with_references({"type": "object", **schema})


def _is_reference(key: str, value: object) -> bool:
    return key == "$ref" and isinstance(value, str) and value.startswith("#")


class ToolCallReader:
    """Tells calls from text in an answer that arrives in pieces; nothing of it is lost but blanks beside calls."""

    def __init__(self, form: ToolCallForm, names: Collection[str]) -> None:
        """``names`` are those of the functions that may be called."""
        self._form = form
        self._names = names
        self._held = ""  # text that may become a call, or blanks before one
        self._is_in_call = False
        self._has_begun = False  # whether the answer has more than blanks

    def push(self, piece: str) -> list[str | ToolCall]:
        """What is certain after a piece of the answer: texts and calls, in their order."""
        self._held += piece
        found: list[str | ToolCall] = []
        while self._advance(found):
            pass
        return found

    def finish(self) -> list[str | ToolCall]:
        """What is left at the end of the answer."""
        held, self._held = self._held, ""
        if not self._is_in_call:
            return [held] if held else []
        self._is_in_call = False
        return self._calls_or_text(held, "")

    def _advance(self, found: list[str | ToolCall]) -> bool:
        """Take one text or call from what is held; False where more of the answer is needed."""
        if self._is_in_call:
            return self._take_call(found)
        if not self._has_begun and self._held.strip():
            self._has_begun = True
            if self._form.is_bare and self._held.lstrip().startswith("{"):
                self._is_in_call = True
                return False
        begin = self._held.find(self._form.begin) if self._form.begin else -1
        if begin >= 0:
            self._push_text(self._held[:begin].rstrip(), found)
            self._held = self._held[begin:]
            self._is_in_call = True
            return True
        num_shown = self._num_certain()
        self._push_text(self._held[:num_shown], found)
        self._held = self._held[num_shown:]
        return False

    def _take_call(self, found: list[str | ToolCall]) -> bool:
        end = self._held.find(self._form.end) if self._form.end else -1
        if end < 0:
            return False
        body, self._held = self._held[:end], self._held[end + len(self._form.end) :]
        self._is_in_call = False
        found += self._calls_or_text(body, self._form.end)
        return True

    def _num_certain(self) -> int:
        """How much of the held text is no call's: all but blanks at its end, and a marker's beginning behind them."""
        num_open = longest_beginning(self._held, (self._form.begin,))
        return len(self._held[: len(self._held) - num_open].rstrip())

    def _calls_or_text(self, body: str, end: str) -> list[str | ToolCall]:
        calls = self._calls(body.removeprefix(self._form.begin))
        return [*calls] if calls else [body + end]

    def _calls(self, body: str) -> list[ToolCall]:
        """The calls of JSON values, objects or lists of them; none if anything else is among them."""
        decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        values: list[Any] = []
        position = _end_of_blanks(body, 0)
        while position < len(body):
            try:
                value, position = decoder.raw_decode(body, position)
            except (ValueError, RecursionError):
                return []
            values += value if isinstance(value, list) else [value]
            position = _end_of_blanks(body, position)
        calls = [self._call(value) for value in values]
        known = [call for call in calls if call is not None]
        return known if len(known) == len(calls) else []

    def _call(self, value: Any) -> ToolCall | None:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in self._names:
            return None
        arguments = value.get("arguments", value.get("parameters", {}))
        if not isinstance(arguments, dict):
            return None
        return ToolCall(value["name"], json.dumps(arguments, ensure_ascii=False))

    @staticmethod
    def _push_text(text: str, found: list[str | ToolCall]) -> None:
        if text:
            found.append(text)


def _end_of_blanks(body: str, position: int) -> int:
    found = _BETWEEN_CALLS.match(body, position)
    return found.end() if found else position


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
