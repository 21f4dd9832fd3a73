"""Structured text to its end: what it spells, where it has no way on, and what it stops at."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from pilotfish import Engine
from pilotfish.bindings import CallbackFailedError, InternalError, InvalidArgumentError, Mask, UnsupportedError
from pilotfish.runtime import structured
from pilotfish.runtime.token_bytes import TokenBytes, UnspellableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from command_line import CommandLine
    from numpy.typing import NDArray

pytest.importorskip("llguidance", reason="the extra 'structured' is not installed")

SOURCES: list[dict[str, Any]] = [
    {"num_draft_tokens": 0},
    {"num_draft_tokens": 4},
    {"source": "lookup", "num_draft_tokens": 8},
    {"tree": "dynamic", "tree_nodes": 10, "tree_depth": 3},
    {"tree": "dynamic", "tree_nodes": 12},
    {"typical_acceptance": (0.1, 0.3), "num_draft_tokens": 4},
    {},
]
BOS, EOS = 256, 257


@pytest.fixture(scope="module")
def wide(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=12, num_sequences=2) as engine:
        yield engine


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_what_a_special_token_is_called_is_text(wide: Engine, source: dict[str, Any], temperature: float) -> None:
    if "typical_acceptance" in source and temperature == 0:
        pytest.skip("typical acceptance needs a temperature")
    options = {"temperature": temperature, "seed": 3, **source}
    for pattern in ("</s>!", "<s>[ab]{3}</s>", "(</s>){1,3}x"):
        result = wide.generate("x", regex=pattern, **options)
        assert result.finish_reason == "eos"
        assert re.fullmatch(pattern, result.text)
        assert BOS not in result.token_ids
        assert result.token_ids.index(EOS) == len(result.token_ids) - 1
    schema = {"type": "object", "properties": {"</s>": {"const": "<s>"}}, "required": ["</s>"]}
    schema |= {"additionalProperties": False}
    result = wide.generate("x", json_schema=schema, max_new_tokens=200, **options)
    if result.finish_reason == "eos":
        assert json.loads(result.text) == {"</s>": "<s>"}


def test_a_grammar_may_name_a_special_token(wide: Engine) -> None:
    result = wide.generate("x", grammar='start: "a" <s> "<s>"')
    assert result.text == "a<s>"
    assert result.token_ids.count(BOS) == 1
    with pytest.raises(InvalidArgumentError, match="unknown special token"):
        wide.generate("x", grammar="start: <nothing>")


def holes() -> str:
    """Tokens for a, b, ab and bc, none for c alone; decoded as bytes."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "ab": 2, "bc": 3, "abb": 4}, "a"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return str(tokenizer.to_str())


def fallback() -> str:
    """Byte tokens, two words that begin with a space, and added tokens that are special, named so, and neither."""
    words = [f"<0x{byte:02X}>" for byte in range(256)] + ["\N{LOWER ONE EIGHTH BLOCK}yes", "no", "<unk>"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, ignore_merges=True))
    replace = decoders.Replace("\N{LOWER ONE EIGHTH BLOCK}", " ")
    tokenizer.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("    ", special=False)])
    return str(tokenizer.to_str())


def test_spellings_in_bytes() -> None:
    spelled = TokenBytes(fallback(), 264, [259])
    assert spelled.tokens[0x41] == b"A"
    assert spelled.tokens[256:] == [b" yes", b"no", b"<unk>", b"</s>", b"<think>", b"    ", b"", b""]
    assert spelled.special_token_ids == [259, 260]
    for text in ("</s>", "<think>é", "no     yes", "</s>" * 400):
        ids = spelled(text)
        assert not {259, 260} & set(ids)
        assert text.encode().startswith(b"".join(spelled.tokens[token_id] for token_id in ids))
    assert spelled("no") == [257]
    assert spelled("    ") == [261]
    assert TokenBytes(holes(), 6, [5])("abbc") == [2, 3]
    with pytest.raises(UnspellableError, match="no tokens spell b'ac'"):
        TokenBytes(holes(), 6, [5])("ac")
    with pytest.raises(ValueError, match="ByteLevel nor ByteFallback"):
        TokenBytes(str(Tokenizer(models.WordLevel({"a": 0}, "a")).to_str()), 1, [0])


def text_of(vocabulary: structured.Vocabulary, constraint: structured.Constraint, spelled: Sequence[bytes]) -> bytes:
    """What the lowest ids that may follow spell, up to the end of the text."""
    text = b""
    for _ in range(60):
        word = next(index for index in range(len(spelled)) if allows(constraint, index, len(spelled)))
        constraint.commit([word])
        if word in vocabulary.tokenizer.eos_tokens:
            return text
        text += spelled[word]
    raise AssertionError(text)


def allows(constraint: structured.Constraint, token_id: int, num_ids: int) -> bool:
    import numpy as np

    words: NDArray[np.uint32] = np.zeros((num_ids + 31) // 32, dtype=np.uint32)
    constraint.mask.fill([], words)
    return bool(words[token_id // 32] >> (token_id % 32) & 1)


@pytest.mark.parametrize("demanded", ["</s>", "<think>", "é</s> yes<unk>", "    no", "<0x41>"])
def test_a_vocabulary_with_byte_tokens_spells_anything(demanded: str) -> None:
    vocabulary = structured.Vocabulary(fallback(), 264, [259])
    constraint = vocabulary.grammar(f"start: {json.dumps(demanded)}")
    assert text_of(vocabulary, constraint, TokenBytes(fallback(), 264, [259]).tokens) == demanded.encode()


def test_a_vocabulary_without_all_bytes_spells_what_it_can() -> None:
    vocabulary = structured.Vocabulary(holes(), 6, [5])
    assert text_of(vocabulary, vocabulary.regex("abbc"), TokenBytes(holes(), 6, [5]).tokens) == b"abbc"
    for pattern in ("ac", "abz"):
        with pytest.raises(InvalidArgumentError, match="nothing fulfils it"):
            vocabulary.regex(pattern)


class DeadEnd(structured.Constraint):
    """Text of one letter, again and again, after so many of which nothing may follow."""

    def __init__(self, letter: int, length: int) -> None:
        self.num_committed = 0
        self.letter, self.length = letter, length
        self.mask = Mask(self._fill, 258)

    @property
    def is_dead_end(self) -> bool:
        return self.num_committed >= self.length

    def commit(self, token_ids: Sequence[int]) -> None:
        self.num_committed += len(token_ids)

    def _fill(self, path: Sequence[int], words: NDArray[np.uint32]) -> None:
        if self.num_committed + len(path) < self.length and all(token_id == self.letter for token_id in path):
            words[self.letter // 32] = 1 << self.letter % 32


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_where_nothing_may_follow_the_text_so_far_is_given(
    wide: Engine, source: dict[str, Any], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "typical_acceptance" in source and temperature == 0:
        pytest.skip("typical acceptance needs a temperature")
    letter = wide.encode("a")[0]
    for length in (1, 2, 7, 12):
        monkeypatch.setattr(structured.Vocabulary, "regex", lambda *_, length=length: DeadEnd(letter, length))
        with wide.stream("aaaaaaaa", regex="a", temperature=temperature, seed=1, explain=True, **source) as stream:
            events = list(stream)
            result = stream.result()
        assert result.text == "a" * length == "".join(event.text for event in events)
        assert [event.finish_reason for event in events] == [None] * (length - 1) + ["dead_end"]
        assert result.finish_reason == stream.finish_reason == "dead_end"
        assert result.stats.num_new_tokens == length
        assert sum(each.num_tokens for each in result.rounds) == length - 1
        assert len(result.rounds) == result.stats.num_rounds
        wide.check()
    assert [each.finish_reason for each in wide.generate_batch(["a", "b"], regex="a")] == ["dead_end"] * 2

    async def run() -> str:
        return (await wide.astream("a", regex="a").result()).finish_reason

    assert asyncio.run(run()) == "dead_end"


def test_an_earlier_end_is_the_reason(wide: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    letter = wide.encode("a")[0]
    monkeypatch.setattr(structured.Vocabulary, "regex", lambda *_: DeadEnd(letter, 5))
    assert wide.generate("a", regex="a", max_new_tokens=5).finish_reason == "length"
    assert wide.generate("a", regex="a", stop="aaaaa").finish_reason == "stop"
    assert wide.generate("a", regex="a", stop_ids=[letter]).finish_reason == "stop"


def test_a_limit_at_run_time_ends_the_text(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Properties that may be left out stand beside each other in the parser, more of them than the limit allows."""
    monkeypatch.setitem(structured._LIMITS, "max_items_in_row", 150)
    many = {"type": "object", "properties": {f"p{index}": {"type": "null"} for index in range(50)}}
    schema = {"type": "object", "properties": {"k": {"enum": ["a", "b"]}, "inner": many}, "required": ["k", "inner"]}
    with Engine(tiny_bundle, threads=1) as engine:
        result = engine.generate("x", json_schema=schema, max_new_tokens=200)
        assert result.finish_reason == "dead_end"
        assert "inner" in result.text
        engine.check()


CONTRADICTIONS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}, "required": ["a"]},
    {
        "type": "object",
        "patternProperties": {"^a": {"type": "integer"}},
        "properties": {"ab": {"const": "x"}},
        "required": ["ab"],
    },
    {"type": "array", "items": {"type": "string", "pattern": "^a{3}$", "maxLength": 2}, "minItems": 1},
    {"allOf": [{"enum": [1, 2]}, {"enum": [3]}]},
    {"$ref": "#"},
]


@pytest.mark.parametrize("schema", CONTRADICTIONS, ids=str)
def test_a_contradiction_is_refused_at_the_call(wide: Engine, schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Unsatisfiable|nothing fulfils it"):
        wide.generate("x", json_schema=schema)


HEAVY: dict[str, dict[str, Any]] = {
    "repetitions": {"regex": "((((a{100}){100}){100}){100}){100}"},
    "doubled terminals": {
        "grammar": "start: T0\n" + "\n".join(f"T{i}: T{i + 1} T{i + 1}" for i in range(40)) + '\nT40: "b"'
    },
    "a chain of references": {
        "json_schema": {
            "$defs": {
                f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(2000)
            }
            | {"d2000": {"type": "integer"}},
            "$ref": "#/$defs/d0",
        }
    },
    "a chain of rules": {
        "grammar": "start: r0\n" + "\n".join(f'r{i}: "a" r{i + 1}' for i in range(900)) + '\nr900: "b"'
    },
    "states": {"json_schema": {"type": "string", "pattern": "^(.*a.{100})+$"}},
    "parentheses": {"grammar": "start: " + "(" * 50_000 + '"a"' + ")" * 50_000},
}


@pytest.mark.parametrize("options", HEAVY.values(), ids=HEAVY.keys())
def test_what_is_heavy_is_done_or_refused_soon(wide: Engine, options: dict[str, Any]) -> None:
    try:
        assert wide.generate("x", max_new_tokens=20, **options).finish_reason in ("length", "eos", "dead_end")
    except InvalidArgumentError as error:
        assert "cannot be used" in str(error)  # noqa: PT017 - either is right
    wide.check()


def test_a_compilation_has_an_end(wide: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structured, "_MOST_SECONDS", 0.05)
    monkeypatch.setattr(structured.Constraint, "__init__", lambda *_: time.sleep(1))
    with pytest.raises(InvalidArgumentError, match=r"to compile it takes more than 0\.05 seconds: make it simpler"):
        wide.generate("x", regex="(ab){1000}")


def test_a_panic_of_the_library_is_an_error(wide: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(structured.Constraint, "__init__", panic)
    with pytest.raises(InvalidArgumentError, match="llguidance failed on it: index out of bounds"):
        wide.generate("x", regex="a")
    monkeypatch.undo()
    monkeypatch.setattr(structured.TokenBytes, "__init__", panic)
    with pytest.raises(UnsupportedError, match="cannot use this bundle's tokenizer: index"):
        structured.Vocabulary(fallback(), 264, [259])


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(KeyboardInterrupt, KeyboardInterrupt), (InternalError, InternalError), (KeyError, CallbackFailedError)],
)
def test_what_a_mask_raises_is_what_the_caller_sees(
    wide: Engine, raised: type[BaseException], expected: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(DeadEnd):
        def _fill(self, path: Sequence[int], words: NDArray[np.uint32]) -> None:
            raise raised(f"after {len(path)} tokens, in {len(words)} words")

    monkeypatch.setattr(structured.Vocabulary, "regex", lambda *_: Failing(0, 5))
    with pytest.raises(expected):
        wide.generate("x", regex="a")
    wide.check()


def test_a_special_token_is_a_stop(wide: Engine) -> None:
    options: dict[str, Any] = {"grammar": 'start: "a" <s> "b"', "num_draft_tokens": 4}
    result = wide.generate("x", stop=["<s>"], **options)
    assert (result.text, result.finish_reason, result.token_ids[-1]) == ("a", "stop", BOS)
    assert wide.generate("x", stop="<s>", regex="ab<s>c").text == "ab"  # spelled with ordinary tokens
    assert wide.generate("x", stop="</s>", ignore_eos=True, logit_bias={EOS: 100.0}).finish_reason == "stop"
    with pytest.raises(InvalidArgumentError, match=r"stop is 'a<s>', but text leaves the special token '<s>' out"):
        wide.generate("x", stop=["a<s>"])
    with pytest.raises(InvalidArgumentError, match=r"special token '</s>' out"):
        wide.astream("x", stop=["</s>\n"])
    with pytest.raises(InvalidArgumentError, match=r"character 1 of stop 'a\\ud800' is '\\ud800'"):
        wide.generate("x", stop="a\ud800")


def test_the_command_says_that_the_text_is_incomplete(
    tiny_bundle: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('\N{ZERO WIDTH NO-BREAK SPACE}{"enum": ["yes"]}')
    assert cli("run", tiny_bundle, "x", "--json-schema", schema).out == '"yes"\n'
    monkeypatch.setattr(structured.Vocabulary, "json_schema", lambda *_: DeadEnd(64, 3))
    answer = cli("run", tiny_bundle, "x", "--json-schema", schema)
    assert answer.exit_code == 0
    assert "the text is incomplete" in answer.err
    schema.write_text("{}", encoding="utf-16")
    answer = cli("run", tiny_bundle, "x", "--json-schema", schema)
    assert answer.exit_code == 2
    assert "is UTF-16, must be UTF-8" in answer.err
