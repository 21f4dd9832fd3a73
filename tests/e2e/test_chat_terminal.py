"""``pilotfish chat`` at a terminal: tokens as they come, commands, and a Ctrl-C that ends the answer only."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS_A_ROUND = 0.05
PROGRAM = f"""
import time
from pilotfish.bindings import calls
from pilotfish.runtime.cli import main
step = calls.request_step
def slow_step(request):
    time.sleep({SECONDS_A_ROUND})
    return step(request)
calls.request_step = slow_step
main()
"""
INTERRUPT, END_OF_INPUT = b"\x03", b"\x04"
DEADLINE_SECONDS = 60


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509 - Ctrl-C needs a controlling terminal
            env={**os.environ, "TERM": "dumb", "COLUMNS": "300"},
        )
        os.close(slave)
        self._unread = b""
        self.num_reads = 0

    def send(self, text: bytes) -> None:
        os.write(self._master, text)

    def read_until(self, end: bytes) -> bytes:
        """What comes up to ``end``, which is read too."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        self.num_reads = 0
        while end not in self._unread:
            assert time.monotonic() < deadline, (end, self._unread)
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self._unread += os.read(self._master, 4096)
                except OSError:
                    pytest.fail(f"the program ended before {end!r}: {self._unread!r}")
                self.num_reads += 1
        text, _, self._unread = self._unread.partition(end)
        return text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(tiny_bundle: Path) -> Iterator[Terminal]:
    opened = Terminal("chat", tiny_bundle, "--max-new-tokens", 150, "--draft-tokens", 0, "--threads", 1)
    yield opened
    opened.close()


def test_a_conversation_at_a_terminal(terminal: Terminal) -> None:
    terminal.read_until(b"> ")
    terminal.send(b"/stats\n")
    terminal.read_until(b"nothing generated yet")
    terminal.read_until(b"> ")

    terminal.send(b"hi\n")
    time.sleep(6 * SECONDS_A_ROUND)
    terminal.send(INTERRUPT)
    interrupted = time.monotonic()
    terminal.read_until(b"(cancelled)")
    assert time.monotonic() - interrupted < 20 * SECONDS_A_ROUND
    assert terminal.num_reads > 1  # tokens came as they were made
    terminal.read_until(b"> ")
    assert terminal.process.poll() is None

    terminal.send(b"/stats\n")
    terminal.read_until(b"new tokens at")
    terminal.read_until(b"> ")
    time.sleep(SECONDS_A_ROUND)  # readline shows its prompt just before it begins to wait, where signals wake it
    terminal.send(INTERRUPT)  # with no answer to end
    terminal.read_until(b"> ")
    terminal.send(b"/system be brief\n")
    terminal.read_until(b"system message set")
    terminal.read_until(b"> ")
    terminal.send(b"/reset\n")
    terminal.read_until(b"conversation forgotten")
    terminal.read_until(b"> ")

    terminal.send(b"again\n")
    time.sleep(4 * SECONDS_A_ROUND)
    terminal.send(INTERRUPT)
    terminal.read_until(b"(cancelled)")
    terminal.read_until(b"> ")
    terminal.send(END_OF_INPUT)
    assert terminal.process.wait(DEADLINE_SECONDS) == 0
