"""``run`` and ``chat`` with --show-drafts: the same text in colours, and what they mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("command", ["run", "chat"])
def test_the_text_is_the_same_in_colours(tiny_bundle: Path, cli: CommandLine, command: str) -> None:
    def finished(*flags: str) -> tuple[str, str]:
        arguments = (["hi"], "") if command == "run" else ([], "hi\n")
        done = cli(command, tiny_bundle, *arguments[0], "--max-new-tokens", 40, *flags, stdin=arguments[1])
        assert done.exit_code == 0, done.err
        return done.out, done.err

    plain, _ = finished("--source", "draft", "--draft-tokens", "3")
    coloured, notes = finished("--source", "draft", "--draft-tokens", "3", "--show-drafts")
    assert COLOURS.search(plain) is None
    assert "\x1b[34m" in coloured
    assert COLOURS.sub("", coloured) == plain
    counts = re.search(r"tokens by origin: (.*)", COLOURS.sub("", notes))
    assert counts is not None
    assert sum(map(int, re.findall(r"\d+", counts[1]))) == 40


def test_explain_is_not_turned_on_by_it(tiny_bundle: Path, cli: CommandLine) -> None:
    assert "tokens expected" not in cli("run", tiny_bundle, "hi", "--max-new-tokens", 8, "--show-drafts").err
