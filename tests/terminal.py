"""The ``pilotfish`` command on a pseudo-terminal, with slow rounds."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

SECONDS_A_ROUND = 0.05  # so that there is time to interrupt an answer
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
            preexec_fn=take_terminal,  # noqa: PLW1509 - Ctrl-C needs a controlling terminal and must not be ignored
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

    def interrupt_until(self, end: bytes) -> None:
        """Ctrl-C until ``end`` comes: readline shows its prompt before it waits, where alone a signal wakes it."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not select.select([self._master], [], [], 1)[0]:
            assert time.monotonic() < deadline, "Ctrl-C has no effect"
            self.send(INTERRUPT)
        self.read_until(end)

    def read_some(self) -> None:
        """Waits for the first byte."""
        assert select.select([self._master], [], [], DEADLINE_SECONDS)[0]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def take_terminal() -> None:
    import fcntl
    import signal
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
