"""The prompts that the package brings, and what a file of prompts may hold."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from pilotfish import Engine
from pilotfish.bindings import ContextFullError, InvalidArgumentError
from pilotfish.runtime.bench_prompts import BUILT_IN, built_in_prompts, prompts_from_file

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {"chat", "code", "mathematics", "retrieval", "summaries", "translation"}


def test_the_package_has_ten_prompts_of_each_of_six_kinds_and_their_licence() -> None:
    entries = [json.loads(line) for line in BUILT_IN.read_text(encoding="utf-8").splitlines()]
    assert Counter(entry["category"] for entry in entries) == dict.fromkeys(KINDS, 10)
    assert len({entry["prompt"] for entry in entries}) == 60
    for start in range(0, 60, 6):  # a run that ends early has measured all kinds
        assert {entry["category"] for entry in entries[start : start + 6]} == KINDS
    licence = resources.files("pilotfish.runtime").joinpath("bench_prompts.LICENSE.md").read_text(encoding="utf-8")
    assert "Apache-2.0" in licence


def test_prompts_that_are_too_long_are_counted(tiny_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    texts = ["short", "x " * 400, "short too"]
    file.write_text("".join(json.dumps({"prompt": text, "category": "a"}) + "\n" for text in texts))
    with Engine(tiny_bundle, threads=1) as engine:
        found = prompts_from_file(engine, str(file), 8)
        assert (len(found.prompts), found.num_too_long) == (2, 1)
        with pytest.raises(ContextFullError, match="none of the 3 prompts"):
            prompts_from_file(engine, str(file), engine.info.max_context - 1)
        built_in = built_in_prompts(engine, 8)
        assert len(built_in.prompts) + built_in.num_too_long == 60
        assert built_in.digest != found.digest


@pytest.mark.parametrize("text", ["", " \\n"])
def test_an_empty_prompt_is_named_by_its_line(tiny_bundle: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a", "category": "b"}\n\n' + f'{{"prompt": "{text}", "category": "b"}}\n')
    with Engine(tiny_bundle, threads=1) as engine, pytest.raises(InvalidArgumentError, match="line 3: prompt is"):
        prompts_from_file(engine, str(file))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[" * 100_000, "line 2 is .*it is nested too deep"),
        ('{"prompt": "a", "prompt": "b", "category": "c"}', "line 2 .*an object has 'prompt' twice"),
        ('{"prompt": NaN, "category": "c"}', "line 2 .*NaN is no number of JSON"),
        ('{"prompt": ["a"], "category": "c"}', "line 2: prompt is .* must be a string"),
        ('{"prompt": "a", "category": " "}', "line 2: category is ' ', must be a text that is not empty"),
        (r'{"prompt": "a\ud800", "category": "c"}', "character 1 of .* line 2: prompt is .* half of a surrogate pair"),
        ('"a"', "line 2 is"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tiny_bundle: Path, tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('\ufeff{"prompt": "a", "category": "b"}\r\n' + line + "\n", encoding="utf-8")
    with Engine(tiny_bundle, threads=1) as engine, pytest.raises(InvalidArgumentError, match=words):
        prompts_from_file(engine, str(file))


def test_reports_measured_the_same_prompts_only_if_the_same_ones_fit(tiny_bundle: Path, tmp_path: Path) -> None:
    """A prompt's number is its place among those that fit."""
    file = tmp_path / "prompts.jsonl"
    texts = ["x" * 100, "one", "two"]
    file.write_text("".join(json.dumps({"prompt": text, "category": "a"}) + "\n" for text in texts))
    found = []
    for max_context in (64, 200):
        with Engine(tiny_bundle, threads=1, max_context=max_context) as engine:
            found.append(prompts_from_file(engine, str(file), 8))
    assert [len(each.prompts) for each in found] == [2, 3]
    assert found[0].digest != found[1].digest
