"""Text of a given form: it parses, whatever drafts, and is what plain decoding under the same masks gives."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotfish import Engine
from pilotfish.bindings import InvalidArgumentError, Model, UnsupportedError
from pilotfish.runtime import structured
from pilotfish.runtime.verify_statistics import randomised_rank, uniform_p_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from command_line import CommandLine

pytest.importorskip("llguidance", reason="the extra 'structured' is not installed")

SOURCES: list[dict[str, Any]] = [
    {"num_draft_tokens": 0},
    {"num_draft_tokens": 1},
    {"num_draft_tokens": 4},
    {"num_draft_tokens": 8},
    {"source": "lookup", "num_draft_tokens": 8},
    {"source": "lookup+draft"},
    {"tree": "dynamic", "tree_nodes": 10, "tree_depth": 3},
    {"tree": "dynamic", "tree_nodes": 12},
    {},
]
EOS = 257
NAMES = st.text("abé\N{GRINNING FACE}", min_size=1, max_size=2)
LEAVES = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "integer", "minimum": 0, "maximum": 99}]),
    st.builds(lambda length: {"type": "string", "maxLength": length}, st.integers(0, 3)),
    st.lists(NAMES | st.integers(-5, 5), min_size=1, max_size=3, unique=True).map(lambda values: {"enum": values}),
    st.builds(lambda value: {"const": value}, NAMES),
)


def array_of(items: dict[str, Any], least: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": 2}


def object_of(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(array_of, inner, st.integers(0, 2))
        | st.builds(object_of, st.dictionaries(NAMES, inner, max_size=2))
        | st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=2))
    ),
    max_leaves=3,
)


@pytest.fixture(scope="module")
def wide(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=12, num_sequences=2) as engine:
        yield engine


def fulfils(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is what one of the schemas above describes."""
    if "anyOf" in schema:
        return any(fulfils(value, option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    is_right = {
        "array": lambda: (
            isinstance(value, list)
            and schema["minItems"] <= len(value) <= 2
            and all(fulfils(one, schema["items"]) for one in value)
        ),
        "object": lambda: (
            isinstance(value, dict)
            and value.keys() == schema["properties"].keys()
            and all(fulfils(value[name], inner) for name, inner in schema["properties"].items())
        ),
        "string": lambda: isinstance(value, str) and len(value) <= schema["maxLength"],
        "integer": lambda: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 99,
        "boolean": lambda: isinstance(value, bool),
        "null": lambda: value is None,
    }
    return bool(is_right[schema["type"]]())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    schema=SCHEMAS,
    source=st.sampled_from(SOURCES),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    seed=st.integers(0, 99),
)
def test_it_always_parses_and_greedy_text_is_plains(
    wide: Engine, schema: dict[str, Any], source: dict[str, Any], temperature: float, seed: int
) -> None:
    options = {"json_schema": schema, "max_new_tokens": 200, "temperature": temperature, "seed": seed}
    result = wide.generate("data:", **options, **source)
    wide.check()
    if result.finish_reason == "eos":
        assert fulfils(json.loads(result.text), schema), (schema, result.text)
    else:
        assert result.finish_reason == "length"
    if temperature == 0:
        assert result.token_ids == wide.generate("data:", **options, num_draft_tokens=0).token_ids


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_an_end_inside_a_block_ends_the_text(wide: Engine, source: dict[str, Any]) -> None:
    """Texts of a few tokens: the end-of-text id is among what a round drafts, and nothing comes after it."""
    for pattern in ("a", "ab?", "[0-9]{3}", "(x|yz){1,4}", "é|\N{GRINNING FACE}"):
        for seed in range(6):
            result = wide.generate("end:", regex=pattern, max_new_tokens=50, temperature=1.2, seed=seed, **source)
            assert result.finish_reason == "eos"
            assert re.fullmatch(pattern, result.text)
            assert result.token_ids.count(EOS) == 1
            assert result.token_ids[-1] == EOS


def test_a_grammar(wide: Engine) -> None:
    lark = 'start: sum\nsum: term ("+" term)*\nterm: NUMBER | "(" sum ")"\nNUMBER: /[1-9][0-9]{0,2}/\n'
    for seed in range(8):
        result = wide.generate("=", grammar=lark, max_new_tokens=120, num_draft_tokens=4, temperature=1.0, seed=seed)
        if result.finish_reason == "eos":
            assert re.fullmatch(r"[0-9+()]+", result.text)
            assert isinstance(eval(result.text), int)  # noqa: S307 - digits, plus and brackets


def test_drafts_are_masked_too(wide: Engine) -> None:
    """Otherwise hardly a proposal would fit the grammar, and speculation would be lost under it."""
    options = {"regex": "[a-z]{60}", "max_new_tokens": 61}
    drafted = wide.generate("letters ", **options, num_draft_tokens=4).stats
    assert drafted.acceptance_rate > 0.2
    sampled = wide.generate("letters ", **options, num_draft_tokens=4, temperature=1.0, seed=1).stats
    assert sampled.acceptance_rate > 0.2


@pytest.mark.parametrize("source", SOURCES[:5], ids=str)
def test_samples_follow_the_masked_distribution(wide: Engine, source: dict[str, Any]) -> None:
    """The target's probabilities of the letters that are allowed, renormalised, at every position."""
    letters = [wide.encode(letter)[0] for letter in "abcdefghijklmnopqrstuvwxyz"]
    prompt = wide.encode("letters ")
    generator = np.random.default_rng(0)
    ranks: dict[str, list[float]] = {"target": [], "draft": []}
    for seed in range(12):
        options = {"regex": "[a-z]{40}", "max_new_tokens": 41, "temperature": 1.0, "seed": seed}
        ids = list(wide.generate(prompt, **options, **source).token_ids[:40])
        target, draft = (
            wide.logits(prompt + ids, model)[len(prompt) - 1 : -1, letters].astype(np.float64)
            for model in (Model.TARGET, Model.DRAFT)
        )
        for row, token_id in enumerate(ids):
            probabilities = np.exp(target[row] - target[row].max())
            probabilities /= probabilities.sum()
            preferences = {"target": probabilities, "draft": draft[row] - target[row]}
            for name, preference in preferences.items():
                rank = randomised_rank(probabilities, preference, letters.index(token_id), generator.random())
                assert rank is not None
                ranks[name].append(rank)
    assert min(uniform_p_value(found) for found in ranks.values()) > 1e-4


def test_chat_and_asyncio_have_it_too(wide: Engine) -> None:
    import asyncio

    messages = [{"role": "user", "content": "hi"}]
    assert wide.chat(messages, regex="yes|no").text in ("yes", "no")

    async def run() -> str:
        return (await wide.astream_chat(messages, regex="yes|no").result()).text

    assert asyncio.run(run()) in ("yes", "no")


def test_the_command_has_it(tiny_bundle: Path, tmp_path: Path, cli: CommandLine) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["yes", "no"]}')
    assert json.loads(cli("run", tiny_bundle, "x", "--json-schema", schema).out) in ("yes", "no")
    assert cli("run", tiny_bundle, "x", "--regex", "yes|no").out in ("yes\n", "no\n")
    grammar = tmp_path / "grammar.lark"
    grammar.write_text('start: "a" | "b"')
    assert cli("run", tiny_bundle, "x", "--grammar", grammar).out in ("a\n", "b\n")
    missing = cli("run", tiny_bundle, "x", "--json-schema", tmp_path / "nothing.json")
    assert missing.exit_code == 2
    assert "nothing.json' cannot be read" in missing.err


BAD: list[tuple[dict[str, Any], str]] = [
    ({"json_schema": "{"}, "json_schema is no JSON schema"),
    ({"json_schema": {"type": "poem"}}, "poem"),
    ({"json_schema": {"enum": []}}, "Unsatisfiable"),
    ({"json_schema": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, "Unsatisfiable"),
    ({"json_schema": {"$ref": "#/nowhere"}}, "nowhere"),
    ({"json_schema": 3}, "json_schema is 3"),
    ({"regex": "("}, "regex"),
    ({"regex": r"[^\s\S]"}, "nothing fulfils it"),
    ({"regex": 3}, "regex is 3"),
    ({"grammar": "start: missing"}, "missing"),
    ({"grammar": "no rule at all"}, "grammar"),
    ({"grammar": 'start: "a" start'}, "grammar"),
    ({"regex": "a", "grammar": 'start: "a"'}, "regex and grammar"),
    ({"regex": "a", "ignore_eos": True}, "ignore_eos"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_what_cannot_be_fulfilled_is_one_error(wide: Engine, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(words)) as caught:
        wide.generate("x", **options)
    assert "\n" not in str(caught.value)
    assert wide.generate("x", max_new_tokens=3).token_ids
    wide.check()


def test_without_the_library_it_says_what_to_install(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with Engine(tiny_bundle, threads=1) as engine:
        with pytest.raises(UnsupportedError, match=r"pip install 'pilotfish\[structured\]'"):
            engine.generate("x", regex="a")
        assert engine.generate("x", max_new_tokens=3).token_ids


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_matcher_moves_along_any_paths(vocabulary: structured.Vocabulary, data: st.DataObject) -> None:
    """Masks along random paths, there and back, are those of a matcher that went straight to each of them."""
    pattern = "(ab|ac|b[0-9]{1,3}x){1,6}"
    constraint, committed = vocabulary.regex(pattern), []
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(1, 5))):
            path = data.draw(st.lists(st.sampled_from([ord(letter) - 33 for letter in "abcx0123"]), max_size=5))
            straight = vocabulary.regex(pattern)
            straight.commit(committed)
            np.testing.assert_array_equal(words(constraint, path), words(straight, path))
        step = allowed_walk(constraint, data.draw(st.integers(0, 3)), data)
        constraint.commit(step)
        committed += step


@pytest.fixture(scope="module")
def vocabulary() -> structured.Vocabulary:
    from tiny_bundles import byte_tokenizer

    return structured.Vocabulary(byte_tokenizer().to_str(), 258, [EOS])


def words(constraint: structured.Constraint, path: list[int]) -> np.ndarray:
    mask = np.zeros((258 + 31) // 32, dtype=np.uint32)
    constraint.mask.fill(path, mask)
    return mask


def allowed_walk(constraint: structured.Constraint, length: int, data: st.DataObject) -> list[int]:
    path: list[int] = []
    for _ in range(length):
        bits = np.unpackbits(words(constraint, path).view(np.uint8), bitorder="little")
        allowed = [int(index) for index in np.flatnonzero(bits) if index != EOS]
        if not allowed:
            break
        path.append(data.draw(st.sampled_from(allowed)))
    return path
