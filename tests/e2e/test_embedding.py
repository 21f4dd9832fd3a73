"""An engine inside a larger program: forks, pickles, threads that run on, and what is open when the program ends."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pilotfish import Engine, PilotfishError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEADLINE_SECONDS = 120


@pytest.fixture
def fork_answers(tiny_bundle: Path) -> Callable[[Callable[[Engine], object]], object]:
    """What a call gives in a fork of a process with an engine and an open stream; its error as text."""

    def answer(call: Callable[[Engine], object]) -> object:
        with Engine(tiny_bundle, threads=2, num_sequences=2) as engine, engine.stream("open", ignore_eos=True) as open_:
            next(open_)
            queue = multiprocessing.get_context("fork").SimpleQueue()

            def child() -> None:
                try:
                    found = call(engine)
                except PilotfishError as error:
                    found = f"{type(error).__name__}: {error}"
                open_.cancel()
                open_.close()
                engine.close()
                queue.put(found)

            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            found = queue.get()
            process.join(DEADLINE_SECONDS)
            assert process.exitcode == 0
            assert next(open_).token_id >= 0  # the parent's goes on
            return found

    return answer


def test_a_fork_is_told_that_the_engine_is_not_its_own(
    fork_answers: Callable[[Callable[[Engine], object]], object],
) -> None:
    found = fork_answers(lambda engine: engine.generate("x").text)
    assert "InvalidArgumentError: the engine belongs to process" in str(found)


def test_a_fork_may_load_the_bundle_itself(
    fork_answers: Callable[[Callable[[Engine], object]], object], tiny_bundle: Path
) -> None:
    def own(_: Engine) -> tuple[int, ...]:
        with Engine(tiny_bundle, threads=2) as engine:
            return engine.generate("fork", max_new_tokens=8).token_ids

    with Engine(tiny_bundle, threads=2) as engine:
        assert fork_answers(own) == engine.generate("fork", max_new_tokens=8).token_ids


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy])
def test_an_engine_has_no_copies(engine: Engine, duplicate: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied: load the bundle in each process"):
        duplicate(engine)


ENDINGS = {
    "streams are open": "streams = [engine.stream('a'), engine.stream('b')]; next(streams[0])",
    "all is in a reference cycle": (
        "class Node: pass\nnode = Node(); node.self, node.engine, node.stream = node, engine, engine.stream('a')"
    ),
    "an asynchronous stream never began": "stream = engine.astream('a')",
    "threads generate": (
        "import threading, time\n"
        "def run():\n"
        "    while True: engine.generate('thread', max_new_tokens=100, ignore_eos=True)\n"
        "for _ in range(2): threading.Thread(target=run, daemon=True).start()\n"
        "time.sleep(0.3)"
    ),
    "an exception is raised": "stream = engine.stream('a'); next(stream); sys.exit('expected')",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_may_end_while(tiny_bundle: Path, name: str) -> None:
    program = f"import sys\nfrom pilotfish import Engine\nengine = Engine({str(tiny_bundle)!r}, num_sequences=2)\n"
    finished = subprocess.run(
        [sys.executable, "-c", program + ENDINGS[name]],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    expected = (1, "expected\n") if "exception" in name else (0, "")
    assert (finished.returncode, finished.stderr) == expected
