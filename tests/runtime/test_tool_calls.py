"""Calls of functions are found in the answers of each family, however the text is cut into pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.runtime.tool_calls import (
    GRANITE,
    HERMES,
    LLAMA3,
    MISTRAL,
    WHOLE,
    ToolCall,
    ToolCallForm,
    ToolCallReader,
    called_schema,
    form_of,
)

TEMPLATES = Path(__file__).parent.parent / "data" / "chat_templates"
FORMS = {
    "hermes": HERMES,
    "qwen2_5": HERMES,
    "qwen3": HERMES,
    "llama3_1": LLAMA3,
    "mistral": MISTRAL,
    "granite3": GRANITE,
}
F = ("f", '{"a": 1}')
G = ("g", "{}")
F_JSON = '{"name": "f", "arguments": {"a": 1}}'
G_JSON = '{"name": "g", "arguments": {}}'


def read(form: ToolCallForm, text: str, size: int) -> list[str | tuple[str, str]]:
    """The pieces of a text that arrives in so many characters at a time; neighbouring texts are joined."""
    reader = ToolCallReader(form, ("f", "g"))
    pieces: list[str | ToolCall] = []
    for begin in range(0, len(text), size):
        pieces += reader.push(text[begin : begin + size])
    joined: list[str | tuple[str, str]] = []
    for piece in [*pieces, *reader.finish()]:
        if isinstance(piece, ToolCall):
            joined.append((piece.name, piece.arguments))
        elif joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (HERMES, "just text ", ["just text "]),
        (HERMES, f"<tool_call>\n{F_JSON}\n</tool_call>", [F]),
        (HERMES, f"Wait.\n\n<tool_call>{F_JSON}</tool_call>\n<tool_call>{G_JSON}</tool_call>", ["Wait.", F, G]),
        (HERMES, f"<tool_call>\n{F_JSON}", [F]),  # the end of text came instead of the closing tag
        (HERMES, f"<tool_call>{F_JSON}</tool_call> so <tool_", [F, " so <tool_"]),
        (HERMES, "<tool_call>{</tool_call>", ["<tool_call>{</tool_call>"]),
        (
            HERMES,
            '<tool_call>{"name": "f", "arguments": 3}</tool_call>',
            ['<tool_call>{"name": "f", "arguments": 3}</tool_call>'],
        ),
        (
            HERMES,
            '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
            ['<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>'],
        ),
        (HERMES, "a < b <tool <tool_call", ["a < b <tool <tool_call"]),
        (MISTRAL, f"[TOOL_CALLS] [{F_JSON}, {G_JSON}]", [F, G]),
        (MISTRAL, f"Yes. [TOOL_CALLS][{F_JSON}]", ["Yes.", F]),
        (MISTRAL, "[TOOL_CALLS] no", ["[TOOL_CALLS] no"]),
        (GRANITE, f"<|tool_call|>[{F_JSON}]", [F]),
        (LLAMA3, '{"name": "f", "parameters": {"a": 1}}', [F]),
        (LLAMA3, f"<|python_tag|>{F_JSON}; {G_JSON}", [F, G]),
        (LLAMA3, '{"no": "call"}', ['{"no": "call"}']),
        (LLAMA3, 'See {"name": "f"}', ['See {"name": "f"}']),
        (WHOLE, F_JSON, [F]),
        (WHOLE, F_JSON[:-1], [F_JSON[:-1]]),
    ],
)
def test_calls_are_found(form: ToolCallForm, text: str, expected: list[object], size: int) -> None:
    assert read(form, text, size) == expected


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "value",
    [
        "{",
        "{}",
        "3",
        '{"name": "h"}',
        '{"name": ["f"]}',
        '{"name": "f", "arguments": 3}',
        '{"name": "f", "arguments": {"a": NaN}}',
    ],
)
def test_what_is_no_call_stays_as_it_was(value: str, size: int) -> None:
    text = f"<tool_call>{value}</tool_call>"
    assert read(HERMES, text, size) == [text]


@pytest.mark.parametrize("text", ["{" * 100_000, "[" * 100_000])
def test_deep_nesting_is_text(text: str) -> None:
    assert read(MISTRAL, "[TOOL_CALLS]" + text, 10**6) == ["[TOOL_CALLS]" + text]


def test_each_call_has_an_id_of_its_own_that_mistrals_template_takes() -> None:
    ids = {ToolCall("f", "{}").id for _ in range(100)}
    assert len(ids) == 100
    assert all(len(each) == 9 and each.isalnum() for each in ids)


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_forms_of_families(path: Path) -> None:
    assert form_of(path.read_text()) is FORMS.get(path.stem)


def test_no_template_and_one_of_an_unknown_form() -> None:
    assert form_of(None) is None
    assert form_of("[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}") is None


def test_schemas_keep_their_own_references() -> None:
    parameters = {"$defs": {"X": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/X"}, "$ref": {"const": 1}}}
    schema = called_schema([{"name": "f"}, {"name": "g", "parameters": parameters}])
    moved = schema["$defs"]["1"]
    assert moved["properties"] == {"x": {"$ref": "#/$defs/1/$defs/X"}, "$ref": {"const": 1}}
    assert moved["$defs"] == parameters["$defs"]
    assert [each["properties"]["name"] for each in schema["anyOf"]] == [{"const": "f"}, {"const": "g"}]
    assert json.loads(json.dumps(schema)) == schema
