"""`pilotfish train draft`: exit codes 0, 2 and 75, scores on stdout and progress on stderr."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tiny_training import WORDS, save_target

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

TINY = (
    *("--hidden", 32, "--layers", 1, "--heads", 2, "--kv-heads", 1, "--ffn", 32, "--device", "cpu"),
    *("--text-length", 48, "--text-steps", 3, "--text-rate", 1e-2, "--text-warmup", 1, "--self-text-steps", 0),
    *("--batch-tokens", 96, "--evaluate-every", 2, "--data-licence", "CC0-1.0"),
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("train_command")
    (folder / "text.txt").write_text(" ".join(WORDS[index * index % 57] for index in range(3000)), encoding="utf-8")
    return ("--target", str(save_target(folder / "target")), "--data", str(folder / "text.txt"))


def test_trains_and_shows_scores(inputs: tuple[str, ...], tmp_path: Path, cli: CommandLine) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"category": "words", "prompt": "w1 w4"}\n', encoding="utf-8")
    evaluation = ("--evaluation-prompts", prompts, "--evaluation-tokens", 8)
    finished = cli("train", "draft", *inputs, *TINY, *evaluation, "--out", tmp_path / "draft", "--json", "-")
    assert finished.exit_code == 0, finished.err
    numbers = json.loads(finished.out.splitlines()[-1])
    assert set(numbers["held_out"]) == {"text"}
    assert [row["category"] for row in numbers["prompts"]] == ["words", "all"]
    assert "acceptance, greedy" in finished.out
    assert "text 2/3, held out: loss" in finished.err
    assert (tmp_path / "draft" / "model.safetensors").is_file()
    assert "pilotfish train draft" in (tmp_path / "draft" / "README.md").read_text()


def test_trains_a_head_and_shows_acceptance_by_position(
    inputs: tuple[str, ...], tmp_path: Path, cli: CommandLine
) -> None:
    head = ("--num-heads", 2, *TINY[TINY.index("--device") :])
    finished = cli("train", "medusa", *inputs, *head, "--out", tmp_path / "head", "--json", "-")
    assert finished.exit_code == 0, finished.err
    numbers = json.loads(finished.out.splitlines()[-1])
    assert numbers["kind"] == "medusa"
    assert f"pilotfish export TARGET --head {tmp_path / 'head'}" in finished.out.replace("\n", " ")
    line = next(line for line in finished.err.splitlines() if "text 3/3, held out" in line)
    assert " sampled, greedy " in line
    assert (tmp_path / "head" / "model.safetensors").is_file()
    assert "pilotfish train medusa" in (tmp_path / "head" / "README.md").read_text()


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("eagle", ["--version", "2"], "version is 2; EAGLE heads of version 1 and 3 can be trained"),
        ("mlp", ["--tie", "maybe"], "'maybe' is neither yes nor no"),
        ("medusa", ["--num-heads", "9"], "num_heads is 9"),
        ("eagle", ["--taps", "0,1,7"], "the target has 2 layers"),
        ("medusa", ["--taps", "0,2"], "the target has 2 layers, give different ones of 0 to 1"),
        ("mlp", ["--taps", "1,1"], "give different ones of 0 to 1"),
    ],
)
def test_bad_input_of_heads_is_one_line(  # noqa: PLR0917 - by pytest
    inputs: tuple[str, ...], tmp_path: Path, cli: CommandLine, kind: str, arguments: list[str], message: str
) -> None:
    finished = cli("train", kind, *inputs, *TINY[TINY.index("--device") :], "--out", tmp_path / "head", *arguments)
    assert finished.exit_code == 2
    assert message in finished.err.splitlines()[-1]


def test_the_time_limit_has_a_code_of_its_own(inputs: tuple[str, ...], tmp_path: Path, cli: CommandLine) -> None:
    command = ("train", "draft", *inputs, *TINY, "--out", tmp_path / "draft")
    assert cli(*command, "--time-limit", 1e-6).exit_code == 75
    assert cli(*command).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--speed", "3"], "unrecognized arguments: --speed 3"),
        (["--layers", "many"], "argument --layers: invalid int value: 'many'"),
        (["--batch-tokens", "100"], "batch_tokens is 100"),
        (["--data", "missing"], "missing"),
    ],
)
def test_bad_input_is_one_line(
    inputs: tuple[str, ...], tmp_path: Path, cli: CommandLine, arguments: list[str], message: str
) -> None:
    finished = cli("train", "draft", *inputs, *TINY, "--out", tmp_path / "draft", *arguments)
    assert finished.exit_code == 2
    assert message in finished.err.splitlines()[-1]
    assert finished.out == ""
