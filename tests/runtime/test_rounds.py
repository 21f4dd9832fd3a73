"""Threads that wait for a round at the same time get it together; what ends one of them does not hold up the others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.bindings import Finish, Origin, PilotfishError, Token
from pilotfish.runtime import rounds as rounds_module
from pilotfish.runtime.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE_SECONDS = 30
TOKEN = Token(1, Origin.PLAIN, -1.0, 0.0)


class Request(str):
    """Stands for a generation that nobody closes."""

    __slots__ = ()
    closed = False


class NativeSteps:
    """Stands for the engine: answers every step with one token, or raises; remembers who was stepped together."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.during: Callable[[], None] = lambda: None

    def step_together(self, requests: list[str]) -> list[Any]:
        self.together.append(list(requests))
        self.during()
        return [([TOKEN], Finish.NONE) for _ in requests]


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> NativeSteps:
    native = NativeSteps()
    monkeypatch.setattr(rounds_module, "calls", native)
    return native


def step(rounds: Rounds, request: str, owner: int) -> Any:
    stands_in: Any = Request(request)
    return rounds.step(stands_in, owner)


def started(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def wait_for(condition: Callable[[], bool]) -> None:
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < DEADLINE_SECONDS
        time.sleep(0.001)


def test_who_waits_during_a_round_shares_the_next_one(native: NativeSteps) -> None:
    rounds = Rounds(4)
    release = threading.Event()
    native.during = lambda: None if release.wait(DEADLINE_SECONDS) else pytest.fail("the round was never released")
    threads = [started(lambda: step(rounds, "first", 1))]
    wait_for(lambda: len(native.together) == 1)
    threads += [started(lambda index=index: step(rounds, f"later {index}", 2 + index)) for index in range(6)]
    wait_for(lambda: len(rounds._waiting) == 6)
    release.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert native.together[0] == ["first"]
    assert [len(requests) for requests in native.together] == [1, 4, 2]
    assert {name for requests in native.together[1:] for name in requests} == {f"later {index}" for index in range(6)}


def test_an_engine_for_one_makes_plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        @staticmethod
        def request_step(request: str) -> tuple[list[Token], Finish]:
            return ([TOKEN] * len(request), Finish.LENGTH)

    monkeypatch.setattr(rounds_module, "calls", Plain)
    assert step(Rounds(1), "abc", 1) == ([TOKEN] * 3, Finish.LENGTH)


def test_one_thread_with_two_streams_waits_for_nobody(native: NativeSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot come back with the first while it waits for the second."""
    monkeypatch.setattr(rounds_module, "_LEAST_PATIENCE_SECONDS", DEADLINE_SECONDS)
    rounds = Rounds(4)
    begin = time.monotonic()
    for _ in range(3):
        step(rounds, "one", 1)
        step(rounds, "two", 1)
    assert time.monotonic() - begin < DEADLINE_SECONDS / 2
    assert native.together == [["one"], ["two"]] * 3


def test_who_had_a_part_in_the_last_round_is_waited_for_a_moment(native: NativeSteps) -> None:
    rounds = Rounds(4)
    step(rounds, "slow", 1)
    rounds._patience = 0.5
    thread = started(lambda: step(rounds, "quick", 2))
    wait_for(lambda: len(rounds._waiting) == 1)
    step(rounds, "slow", 1)
    thread.join(DEADLINE_SECONDS)
    assert native.together == [["slow"], ["quick", "slow"]]
    begin = time.monotonic()
    step(rounds, "quick", 2)  # "slow" does not come
    assert time.monotonic() - begin < DEADLINE_SECONDS / 2


def test_an_interrupt_of_the_thread_that_runs_a_round_fails_the_others_in_it(native: NativeSteps) -> None:
    rounds = Rounds(4)
    errors: list[BaseException] = []
    first = threading.Event()

    def run(name: str, owner: int) -> None:
        try:
            step(rounds, name, owner)
        except BaseException as error:  # noqa: BLE001 - an interrupt too
            errors.append(error)

    def block_first() -> None:
        if len(native.together) == 1:
            assert first.wait(DEADLINE_SECONDS)
        else:
            raise KeyboardInterrupt

    native.during = block_first
    threads = [started(lambda: run("first", 1))]
    wait_for(lambda: len(native.together) == 1)
    threads += [started(lambda index=index: run(f"later {index}", 2 + index)) for index in range(3)]
    wait_for(lambda: len(rounds._waiting) == 3)
    first.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert sorted(type(error).__name__ for error in errors) == ["KeyboardInterrupt", "PilotfishError", "PilotfishError"]
    assert "KeyboardInterrupt ended the thread that ran it" in str(
        next(error for error in errors if isinstance(error, PilotfishError))
    )
    native.during = lambda: None
    assert step(rounds, "after", 9) == ([TOKEN], Finish.NONE)


def test_who_is_interrupted_while_waiting_has_no_round(native: NativeSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(4)
    release = threading.Event()
    native.during = lambda: None if release.wait(DEADLINE_SECONDS) else pytest.fail("the round was never released")
    thread = started(lambda: step(rounds, "first", 1))
    wait_for(lambda: len(native.together) == 1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rounds._changed, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            step(rounds, "interrupted", 2)
    assert thread.is_alive()
    release.set()
    thread.join(DEADLINE_SECONDS)
    step(rounds, "last", 3)
    assert native.together == [["first"], ["last"]]
