"""What is passed for structured output: each fault is one error that names the place and the remedy."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.files import read_text
from pilotfish.runtime.structured_checks import check_grammar, check_regex, reason_of, schema_text

if TYPE_CHECKING:
    from pathlib import Path


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def containing_itself() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    schema["not"] = schema
    return schema


BAD_SCHEMAS: list[tuple[Any, str]] = [
    ({"const": math.nan}, "json_schema.const is nan"),
    ({"const": {1}}, "json_schema.const is {1}"),
    ({"enum": ["a", b"x"]}, "json_schema.enum[1] is b'x'"),
    ({3: 4}, "the key 3, must be a string"),
    ({"properties": {"a\ud800": {}}}, "character 1 of a key of json_schema.properties is '\\ud800'"),
    ({"const": "ab\udfff"}, "character 2 of json_schema.const is '\\udfff'"),
    (containing_itself(), "nested deeper than 64 levels, or contains itself"),
    (nested(10_000), "nested deeper than 64 levels"),
    ("[" * 100_000, "nested deeper than 64 levels"),
    ({"const": 10**5000}, "json_schema.const is an integer of 16610 bits"),
    ('{"const": 1' + "0" * 5000 + "}", "has 5001 digits"),
    ({"enum": list(range(30_000))}, "more than 20000 values"),
    (
        {"allOf": [{"pattern": f"a.{{{i}}}"} for i in range(9)]},
        "more than 8 branches of allOf, and more than 8 patterns",
    ),
    ({"type": "integer", "multipleOf": 999_983}, "json_schema.multipleOf is 999983, must be at most 10000"),
    ({"type": "number", "multipleOf": 1.00001}, "json_schema.multipleOf is 1.00001, must be at most 10000"),
    ({"x-guidance": {"lenient": True}}, "x-guidance"),
    ("true", "json_schema is True, must be a JSON object"),
    ('{"const": NaN}', "json_schema.const is nan"),
    ('{"a": ', "no JSON schema"),
    ('{"\ud800": 1}', "character 2 of json_schema is '\\ud800'"),
    (" " * 1_000_001, "1000001 characters"),
]


@pytest.mark.parametrize(("schema", "words"), BAD_SCHEMAS, ids=[words for _, words in BAD_SCHEMAS])
def test_a_schema_that_is_none(schema: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(words)):
        schema_text(schema)


def test_a_schema_stays_what_it_is() -> None:
    assert schema_text({"enum": ("é", 1, 0.5, None, True)}) == '{"enum": ["\\u00e9", 1, 0.5, null, true]}'
    assert schema_text('\N{ZERO WIDTH NO-BREAK SPACE}{"const": 18446744073709551615}') == (
        '{"const": 18446744073709551615}'
    )
    assert schema_text({"multipleOf": 0.25}) == '{"multipleOf": 0.25}'


@pytest.mark.parametrize(
    ("lark", "words"),
    [
        ('start: "a\ud800"', "character 9 of grammar is '\\ud800'"),
        ("\n".join(f'r{i}: "a" r{i + 1}' for i in range(1001)), "1001 rules, must have at most 1000"),
        ("start: T\nT: " + " & ".join(["/a/"] * 10), "9 & and ~, must have at most 8"),
        ("start: t\nt[temperature=0.3]: /a/", "the option temperature"),
        ("/" * 200_001, "200001 characters"),
    ],
)
def test_a_grammar_that_is_none(lark: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(words)):
        check_grammar(lark)


def test_signs_in_strings_count_for_nothing() -> None:
    check_grammar('start: "&&&&&&&&&&& temperature" /&&&&&&&&&&&/ // &&&&&&&&&&&\n')


def test_an_expression_that_is_none() -> None:
    with pytest.raises(InvalidArgumentError, match=r"character 1 of regex is '\\ud800'"):
        check_regex("a\ud800")
    with pytest.raises(InvalidArgumentError, match="20001 characters, must have at most 20000"):
        check_regex("a" * 20_001)


def test_a_reason_has_no_state_of_another_library_and_no_remedy_that_is_not_here() -> None:
    assert reason_of('at 1(8): rule "x" not found\n   1 | start: x\n         ^\n<state>\nTokens') == (
        'at 1(8): rule "x" not found'
    )
    message = "oneOf constraints are not supported. Enable 'coerce_one_of' option to approximate oneOf with anyOf"
    assert reason_of(message).endswith("use anyOf")
    assert "coerce" not in reason_of(message)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_bytes(b"\xef\xbb\xbf{}\r\n")
    assert read_text("--json-schema", str(file)) == "{}\n"
    for encoding in ("utf-16", "utf-16-be"):
        file.write_bytes((b"\xfe\xff" if encoding == "utf-16-be" else b"") + "{}".encode(encoding))
        with pytest.raises(InvalidArgumentError, match="is UTF-16, must be UTF-8"):
            read_text("--json-schema", str(file))
