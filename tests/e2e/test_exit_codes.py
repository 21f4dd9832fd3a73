"""Bad input ends every command with exit code 2 and a line on stderr, whatever is wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

NOT_UTF8 = os.fsdecode(b"\xff")
LONG = "x" * 5000
BAD = [
    ["run", "BUNDLE", NOT_UTF8],
    ["run", "BUNDLE", "x", "--seed", 2**64],
    ["run", "BUNDLE", "x", "--max-new-tokens", 10**30],
    ["run", "BUNDLE", "x", "--temperature", "nan"],
    ["run", "BUNDLE", "x", "--top-p", 0.9],
    ["run", "BUNDLE", "x", "--min-p", 0.1],
    ["chat", "BUNDLE", "--typical-p", 0.9],
    ["run", "BUNDLE", "x", "--logit-bias", f"{10**30}=1"],
    ["run", "BUNDLE", "x", "--stop-id", 2**64],
    ["run", "BUNDLE", "x", "--stop", ""],
    ["run", "BUNDLE", "x", "--memory-budget", "9" * 400],
    ["run", "BUNDLE", "x", "--threads", 2**31],
    ["run", "BUNDLE", "x", "--device", NOT_UTF8],
    ["run", "BUNDLE", "x", "--lookup-store", LONG],
    ["run", "BUNDLE", "x", "--json", LONG],
    ["run", "BUNDLE", "x", "--tree", LONG],
    ["run", NOT_UTF8, "x"],
    ["run", LONG, "x"],
    ["info", NOT_UTF8],
    ["info", LONG],
    ["plan", "BUNDLE", "--max-context", 2**64],
    ["chat", LONG],
    ["chat", "BUNDLE", "--top-k", 2**40],
    ["bench", "BUNDLE", "--prompt-tokens", 0],
    ["bench", "BUNDLE", "--prompts", LONG],
    ["verify", "BUNDLE", "--prompts", LONG],
    ["calibrate", LONG],
    ["evaluate-draft", LONG, "--prompts", "x"],
    ["evaluate-draft", "BUNDLE", "--prompts", LONG],
    ["export", LONG, "--out", "OUT"],
    ["export", "OUT", "--out", LONG],
    ["doctor", "--json", LONG],
    ["train", "draft", "--steps", "many"],
    ["swim"],
]


@pytest.mark.parametrize("command", BAD, ids=lambda command: f"{command[0]} {str(command[-2:])[:30]!a}")
def test_bad_input(tiny_bundle: Path, tmp_path: Path, cli: CommandLine, command: list[object]) -> None:
    places: dict[object, object] = {"BUNDLE": tiny_bundle, "OUT": tmp_path / "out"}
    finished = cli(*(places.get(word, word) for word in command), stdin="hi\n")
    assert finished.exit_code == 2, finished.err
    assert finished.err
    assert "Traceback" not in finished.err


@pytest.mark.parametrize(("lines", "exit_code"), [("hi\n", 0), ("hi\n/nothing\nhi\n", 2), ("x" * 900 + "\nhi\n", 2)])
def test_a_conversation_from_a_pipe_fails_if_a_line_did(
    tiny_bundle: Path, cli: CommandLine, lines: str, exit_code: int
) -> None:
    finished = cli("chat", tiny_bundle, "--max-new-tokens", 4, stdin=lines)
    assert finished.exit_code == exit_code
    assert finished.out.count("\n") >= 1  # the others were answered


def test_the_place_of_a_surrogate_counts_in_the_users_text(tiny_bundle: Path, cli: CommandLine) -> None:
    assert "character 3 of content of message 0" in cli("run", tiny_bundle, f"abc{NOT_UTF8}").err
    assert "character 3 of the text" in cli("run", "--raw", tiny_bundle, f"abc{NOT_UTF8}").err


def without(*packages: str) -> str:
    """A program that runs the command as if some packages were not installed."""
    return (
        "import importlib.util as u, sys\nfind = u.find_spec\n"
        f"u.find_spec = lambda name, package=None: None if name in {packages} else find(name, package)\n"
        f"sys.modules.update(dict.fromkeys({packages}))\n"
        "from pilotfish.__main__ import main\nmain()"
    )


def test_train_without_its_extra() -> None:
    program = [sys.executable, "-c", without("matplotlib", "accelerate"), "train", "draft"]
    helped = subprocess.run([*program, "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0, helped.stderr
    assert "--target" in helped.stdout


def test_ctrl_c_during_imports_says_nothing() -> None:
    interrupted = (
        "import builtins\nfind = builtins.__import__\n"
        "def ends(name, *rest):\n"
        "    if name == 'typer': raise KeyboardInterrupt\n"
        "    return find(name, *rest)\n"
        "builtins.__import__ = ends\n"
        "from pilotfish.__main__ import main\nmain()"
    )
    finished = subprocess.run(
        [sys.executable, "-c", interrupted, "doctor"], capture_output=True, text=True, check=False
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (130, "", "")
