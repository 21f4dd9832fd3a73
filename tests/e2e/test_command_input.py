"""Commands and what surrounds them: pipes, terminals, Ctrl-C, files that cannot be read or written, encodings."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from terminal import DEADLINE_SECONDS, INTERRUPT, PROGRAM, SECONDS_A_ROUND, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from command_line import CommandLine, Finished


def refused(finished: Finished, *words: str) -> bool:
    """Exit code 2 and one line on stderr, before anything was written to stdout."""
    assert (finished.exit_code, finished.out) == (2, ""), finished
    assert finished.err.startswith("error: ")
    assert finished.err.count("\n") == 1
    assert all(word in finished.err for word in words), finished.err
    return True


def test_input_that_is_no_text(tiny_bundle: Path, cli: CommandLine) -> None:
    for command in (["run", tiny_bundle, "-"], ["chat", tiny_bundle]):
        assert refused(cli(*command, stdin=b"\xff\xfe"), "standard input is no text")
    argument = os.fsdecode(b"\xff")  # as Python hands over a byte that is no UTF-8
    assert refused(cli("run", tiny_bundle, argument), "half of a surrogate pair")
    assert refused(cli("run", "--raw", tiny_bundle, argument), "half of a surrogate pair")


def test_numbers_that_could_not_be_kept_are_refused_before_the_work(
    tiny_bundle: Path, cli: CommandLine, tmp_path: Path
) -> None:
    commands = (["run", tiny_bundle, "x"], ["bench", tiny_bundle], ["info", tiny_bundle], ["verify", tiny_bundle])
    for command in commands:
        assert refused(cli(*command, "--json", tmp_path), str(tmp_path), "it is a folder")
    assert refused(cli("run", tiny_bundle, "x", "--json", tmp_path / "none" / "x.json"), "there is no folder")
    assert refused(cli("run", tiny_bundle, "x", "--json", ""), "it names no file")


def test_an_empty_prompt(tiny_bundle: Path, cli: CommandLine) -> None:
    assert refused(cli("run", tiny_bundle, ""), "the prompt is empty")
    assert refused(cli("run", tiny_bundle, "-", stdin=" \n"), "the prompt is empty")
    assert refused(cli("run", "--raw", tiny_bundle, ""), "must be a non-empty text")


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Files cannot grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_numbers_that_find_no_room_leave_the_old_ones(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    numbers.write_text("old")
    with no_room():
        finished = cli("info", tiny_bundle, "--json", numbers)
    assert finished.exit_code == 2
    assert finished.err == f"error: --json {str(numbers)!r} cannot be written: File too large\n"
    assert [file.name for file in tmp_path.iterdir()] == [numbers.name]
    assert numbers.read_text() == "old"


def test_costs_that_find_no_room(
    tiny_bundle: Path, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with no_room():
        finished = cli("calibrate", tiny_bundle)
    assert finished.exit_code == 2
    assert "nothing could be kept" in finished.err


@pytest.mark.parametrize(
    "command", [["info", "{bundle}"], ["info", "{bundle}", "--json", "-"], ["--version"], ["--help"]]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout(tiny_bundle: Path, command: list[str], unbuffered: str) -> None:
    """Whether it shows when a line is written or when all of them are."""
    arguments = [word.format(bundle=tiny_bundle) for word in command]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        program = [sys.executable, "-c", PROGRAM, *arguments]
        finished = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert (finished.returncode, finished.stderr) == (2, "error: output cannot be written: No space left on device\n")


def test_nothing_but_our_own_is_kept_for_later(tiny_bundle: Path, tmp_path: Path) -> None:
    """ONNX Runtime's telemetry would keep its events beside the calibration until it can send them."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", PROGRAM, "run", str(tiny_bundle), "x", "--max-new-tokens", "2"]
    subprocess.run(command, env=environment | {"XDG_CACHE_HOME": str(tmp_path)}, capture_output=True, check=True)
    assert [folder.name for folder in tmp_path.iterdir()] == ["pilotfish"]


def test_a_bench_that_does_not_fit(tiny_bundle: Path, cli: CommandLine) -> None:
    finished = cli("bench", tiny_bundle, "--prompt-tokens", 20, "--new-tokens", 1000)
    assert refused(finished, "--prompt-tokens 20", "--new-tokens 1000", "context of 256")


def test_a_store_that_could_not_be_written_is_refused_before_the_work(
    tiny_bundle: Path, cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for store, words in (
        ("", "it is a folder"),
        (tmp_path, "it is a folder"),
        (tmp_path / "file" / "x", "no folder"),
    ):
        assert refused(cli("run", tiny_bundle, "x", "--lookup-store", store), "lookup_store", words)
    finished = cli("run", tiny_bundle, "x", "--max-new-tokens", 4, "--lookup-store", tmp_path / "new" / "store")
    assert finished.exit_code == 0
    assert (tmp_path / "new" / "store").stat().st_size > 0


def test_costs_that_could_not_be_kept(
    tiny_bundle: Path, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert refused(cli("calibrate", tiny_bundle), "nothing can be kept", "XDG_CACHE_HOME")
    assert cli("run", tiny_bundle, "x", "--max-new-tokens", 4).exit_code == 0


def test_what_a_bundle_lacks_ends_a_conversation_before_it_begins(tiny_bundle: Path, cli: CommandLine) -> None:
    assert refused(cli("chat", tiny_bundle, "--source", "head", stdin="hi\n"), "has no head")
    assert refused(cli("chat", tiny_bundle, "--temperature", "-1", stdin="hi\n"), "temperature is -1")
    assert refused(cli("chat", tiny_bundle, "--logit-bias", "999=1", stdin="hi\n"), "logit_bias has id 999")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tree-nodes", "4"], 'only tree="dynamic" has it'),
        (["--tree", "9-9"], "tree is '9-9', must be \"dynamic\""),
        (["--draft-tokens", "64"], "num_draft_tokens is 64"),
        (["--device", "tpu"], "device is 'tpu'"),
    ],
)
def test_bench_refuses_what_it_could_not_measure(
    tiny_bundle: Path, cli: CommandLine, flags: list[str], words: str
) -> None:
    assert refused(cli("bench", tiny_bundle, *flags), words)


def test_nothing_is_ignored_silently(tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    assert refused(cli("run", tiny_bundle, "x", "--logprobs", 2), "--logprobs is 2, but only --json FILE shows them")
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps(manifest | {"chat_template": None}))
    for flags, says in (((), True), (("--raw",), False)):
        finished = cli("run", bundle, "x", "--max-new-tokens", 4, *flags)
        assert finished.exit_code == 0
        assert ("has no chat template" in finished.err) is says


def test_an_instruction_set_that_is_not_here(tiny_bundle: Path) -> None:
    environment = {**os.environ, "PILOTFISH_CPU": "mmx"}
    for command in (["doctor"], ["run", str(tiny_bundle), "x"]):
        program = [sys.executable, "-c", "from pilotfish.runtime.cli import main; main()", *command]
        finished = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        assert (finished.returncode, finished.stdout) == (2, "")
        assert "PILOTFISH_CPU=mmx" in finished.stderr


def test_a_terminal_without_the_answers_characters(tiny_bundle: Path) -> None:
    command = ["run", str(tiny_bundle), "hi", "--max-new-tokens", "40", "--ignore-eos"]
    texts = {}
    for encoding in ("utf-8", "ascii"):
        finished = subprocess.run(
            [sys.executable, "-c", "from pilotfish.runtime.cli import main; main()", *command],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        texts[encoding] = finished.stdout.decode(encoding)
    assert not texts["utf-8"].isascii()
    assert texts["ascii"] == texts["utf-8"].encode("ascii", "replace").decode()


@pytest.mark.parametrize(
    ("closed", "prompt", "exit_code", "words"),
    [
        ("2>&-", "x", 0, ""),
        (">&-", "x", 2, "standard output, where results go, is closed"),
        ("<&-", "-", 2, "is empty"),
    ],
)
def test_a_closed_standard_stream(tiny_bundle: Path, closed: str, prompt: str, exit_code: int, words: str) -> None:
    program = [sys.executable, "-m", "pilotfish", "run", str(tiny_bundle), prompt, "--max-new-tokens", "4"]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *program]
    finished = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert finished.returncode == exit_code
    assert words in finished.stderr
    assert bool(finished.stdout) is (exit_code == 0)


def test_ctrl_c_ends_an_answer_with_what_there_is(tiny_bundle: Path) -> None:
    terminal = Terminal(
        "run", tiny_bundle, "hi", "--max-new-tokens", 150, "--ignore-eos", "--draft-tokens", 0, "--threads", 1
    )
    try:
        terminal.read_some()
        time.sleep(4 * SECONDS_A_ROUND)
        terminal.send(INTERRUPT)
        terminal.read_until(b"new tokens at")
        assert terminal.process.wait(DEADLINE_SECONDS) == 130
    finally:
        terminal.close()


def test_a_reader_that_has_seen_enough(tiny_bundle: Path) -> None:
    """As ``pilotfish run ... | head -c 1``: the generation ends soon, and nothing is said about it."""
    flags = ["--max-new-tokens", "150", "--ignore-eos", "--draft-tokens", "0", "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run", str(tiny_bundle), "hi", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    read = time.monotonic()
    assert process.wait(DEADLINE_SECONDS) == 1
    assert time.monotonic() - read < 100 * SECONDS_A_ROUND
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("command", [["--version"], ["--help"], ["info", "{bundle}", "--json", "-"]])
def test_a_reader_that_has_seen_nothing(tiny_bundle: Path, command: list[str]) -> None:
    """As ``pilotfish --version | true``."""
    arguments = [word.format(bundle=tiny_bundle) for word in command]
    reader, writer = os.pipe()
    os.close(reader)
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    )
    os.close(writer)
    assert (finished.returncode, finished.stderr) == (1, b"")
