"""``pilotfish chat --session``: a conversation goes on where it was left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pilotfish import Engine

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

OPTIONS = ("--max-new-tokens", 12, "--threads", 1, "--session")


def test_a_conversation_goes_on_in_another_process(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    whole = cli("chat", tiny_bundle, *OPTIONS, tmp_path / "whole", "--system", "be kind", stdin="one\ntwo\nthree\n")
    parts = [
        cli("chat", tiny_bundle, *OPTIONS, tmp_path / "parts", "--system", "be kind", stdin="one\n"),
        cli("chat", tiny_bundle, *OPTIONS, tmp_path / "parts", stdin="two\n"),
        cli("chat", tiny_bundle, *OPTIONS, tmp_path / "parts", stdin="three\n"),
    ]
    assert [each.exit_code for each in (whole, *parts)] == [0] * 4
    assert "".join(each.out for each in parts) == whole.out
    assert "4 messages from" in parts[2].err
    with Engine(tiny_bundle, threads=1) as engine:
        found = [json.loads(engine.load_session(tmp_path / name).note) for name in ("whole", "parts")]
    assert found[0] == found[1]
    assert [message["role"] for message in found[0]["messages"]] == ["user", "assistant"] * 3
    assert found[0]["system"] == "be kind"


def test_commands_change_what_is_saved(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "file"
    cli("chat", tiny_bundle, *OPTIONS, file, stdin="one\n/system be brief\n/reset\n")
    with Engine(tiny_bundle, threads=1) as engine:
        found = json.loads(engine.load_session(file).note)
    assert (found["system"], found["messages"]) == ("be brief", [])


def test_what_is_no_chat_of_this_bundle_is_refused(
    tiny_bundle: Path, self_bundle: Path, cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("something else")
    refused = cli("chat", tiny_bundle, *OPTIONS, file, stdin="one\n")
    assert refused.exit_code != 0
    assert "is no session" in refused.err
    assert file.read_text() == "something else"
    with Engine(self_bundle, threads=1) as engine:
        engine.save_session(file, [1, 2], note="{}")
    assert "another bundle" in cli("chat", tiny_bundle, *OPTIONS, file, stdin="one\n").err
    assert "no session of pilotfish chat" in cli("chat", self_bundle, *OPTIONS, file, stdin="one\n").err


def test_a_conversation_that_cannot_be_saved_goes_on(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "block").write_text("a file")
    finished = cli("chat", tiny_bundle, *OPTIONS, tmp_path / "block" / "file", stdin="one\ntwo\n")
    assert finished.exit_code != 0
    assert finished.err.count("the conversation is not saved") == 2
