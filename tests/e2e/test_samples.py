"""The sample programs run as they stand, against the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish import Engine
from pilotfish.bindings.paths import compiler_flags
from pilotfish.runtime.ort import ort_library

SAMPLES = Path(__file__).parents[2] / "samples"


def compiled(name: str, folder: Path, *flags: str) -> Path:
    program = folder / name
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", *flags]
    source = SAMPLES / f"{name}.c"
    subprocess.run(["cc", *strict, source, "-o", program, *compiler_flags().split()], check=True)
    return program


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("generate", tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="module")
def c_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("serve", tmp_path_factory.mktemp("c"), "-pthread")


def run(*command: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Text is passed as bytes, for a carriage return in it to stay one."""
    finished = subprocess.run(list(map(str, command)), input=stdin.encode(), capture_output=True, check=False)
    return subprocess.CompletedProcess(command, finished.returncode, finished.stdout.decode(), finished.stderr.decode())


@pytest.mark.parametrize("num_draft_tokens", [0, 4])
def test_the_c_sample_gives_pythons_tokens(c_program: Path, tiny_bundle: Path, num_draft_tokens: int) -> None:
    prompt = [72, 101, 108]
    finished = run(c_program, tiny_bundle, ort_library("cpu"), num_draft_tokens, 20, *prompt)
    with Engine(tiny_bundle, threads=1) as engine:
        expected = engine.generate(prompt, max_new_tokens=20, num_draft_tokens=num_draft_tokens)
    assert finished.returncode == 0, finished.stderr
    assert [int(word) for word in finished.stdout.split()] == list(expected.token_ids)


def test_the_c_sample_explains_a_failure(c_program: Path, tmp_path: Path) -> None:
    finished = run(c_program, tmp_path / "nothing", ort_library("cpu"), 0, 1, 1)
    assert finished.returncode == 1
    assert "nothing" in finished.stderr


def test_the_c_sample_is_short() -> None:
    assert len((SAMPLES / "generate.c").read_text().splitlines()) < 80


def test_the_c_server_gives_each_request_the_tokens_it_has_alone(c_server: Path, tiny_bundle: Path) -> None:
    prompts = {f"r{index}": [72 + index, 101, 108] for index in range(6)}
    lines = "".join(f"{name} {' '.join(map(str, ids))}\n" for name, ids in prompts.items())
    finished = run(c_server, tiny_bundle, ort_library("cpu"), 4, 20, stdin=f"{lines}no number\n")
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == "a line is no NAME and ids\n"
    found: dict[str, list[int]] = {name: [] for name in prompts}
    ends = {}
    for name, *words in map(str.split, finished.stdout.splitlines()):
        if words[0] == "end":
            ends[name] = words[1]
        else:
            assert name not in ends
            found[name] += map(int, words)
    with Engine(tiny_bundle, threads=1) as engine:
        for name, ids in prompts.items():
            expected = engine.generate(ids, max_new_tokens=20)
            assert found[name] == list(expected.token_ids)
            assert ends[name] == expected.finish_reason


def test_the_c_server_cancels_and_explains(c_server: Path, tiny_bundle: Path) -> None:
    stdin = "first 1 2 3\nlater 4 5 6\nwrong 99999\ncancel later\ncancel first\n"
    finished = run(c_server, tiny_bundle, ort_library("cpu"), 1, 200, stdin=stdin)
    assert finished.returncode == 0, finished.stderr
    ends = [line for line in finished.stdout.splitlines() if " end " in line]
    assert "later end cancelled" in ends
    assert any(line.startswith("wrong end ") and "99999" in line for line in ends)
    assert len(ends) == 3


def test_generate_py(tiny_bundle: Path) -> None:
    finished = run(sys.executable, SAMPLES / "generate.py", tiny_bundle, "hello")
    with Engine(tiny_bundle) as engine:
        expected = engine.generate("hello", max_new_tokens=64)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith(expected.text)


def test_chat_py(tiny_bundle: Path) -> None:
    finished = run(sys.executable, SAMPLES / "chat.py", tiny_bundle, stdin="hello\nagain\n")
    assert finished.returncode == 0, finished.stderr
    with Engine(tiny_bundle) as engine:
        expected = engine.chat([{"role": "user", "content": "hello"}], max_new_tokens=64)
    assert expected.text in finished.stdout


def test_stream_async_py(tiny_bundle: Path) -> None:
    prompts = ["hello", "again"]
    finished = run(sys.executable, SAMPLES / "stream_async.py", tiny_bundle, *prompts)
    assert finished.returncode == 0, finished.stderr
    with Engine(tiny_bundle) as engine:
        for number, prompt in enumerate(prompts):
            with engine.stream(prompt, max_new_tokens=64) as stream:
                expected = [f"{number}: {event.text!r}" for event in stream]
            assert [line for line in finished.stdout.splitlines() if line.startswith(f"{number}: ")] == expected
