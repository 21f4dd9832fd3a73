"""A call in a thread of its own gives what it gives, raises what it raises, and is not waited for any longer."""

from __future__ import annotations

import threading
import time

import pytest

from pilotfish.bindings import OutOfMemoryError
from pilotfish.runtime.deep_thread import call_deeply


def test_values_and_errors_come_back() -> None:
    assert call_deeply(lambda: threading.current_thread().name, 10) == "pilotfish-grammar"
    with pytest.raises(KeyError):
        call_deeply(lambda: {}[0], 10)


def test_the_wait_ends() -> None:
    ended = threading.Event()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        call_deeply(lambda: ended.wait(100), 0.05)
    assert time.monotonic() - started < 50
    ended.set()


def test_other_threads_keep_their_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = threading.stack_size()

    def start(self: threading.Thread) -> None:
        assert threading.stack_size() > 100 << 20
        raise RuntimeError(f"can't start {self.name}")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(OutOfMemoryError, match="a stack of 256 MiB"):
        call_deeply(lambda: None, 10)
    assert threading.stack_size() == usual
