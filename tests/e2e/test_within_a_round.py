"""What Python does while a round runs in its thread: signal handlers and the collector come when they please."""

from __future__ import annotations

import faulthandler
import gc
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish import Engine
from pilotfish.bindings import EngineBusyError, Finish, InvalidArgumentError
from pilotfish.bindings.masks import MaskCall
from pilotfish.runtime.rounds import _Step
from pilotfish.runtime.structured import Constraint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pilotfish.runtime import TokenStream

REGEX = "[ab]{8}"
SECONDS = 60  # what waits for itself waits longer


@pytest.fixture(scope="module")
def pair(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, num_sequences=4) as engine:
        yield engine
        engine.check()


def in_first_mask(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """``act`` is called once, while the library waits for a mask."""
    fill, is_first = Constraint._fill, [True]

    def acting(self: Constraint, path: Any, words: Any) -> None:
        if is_first:
            is_first.clear()
            act()
        fill(self, path, words)

    monkeypatch.setattr(Constraint, "_fill", acting)


def in_time(work: Callable[[], Any]) -> Any:
    """What ``work`` returns or raises, from a thread that does not hold up the tests where it hangs."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised below
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "it waits for itself"
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def num_used(engine: Engine) -> int:
    info = engine.info
    return info.num_blocks - info.num_free_blocks - info.num_retained_blocks


def test_another_stream_is_closed(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    other = pair.stream([1], max_new_tokens=9)
    next(other)
    assert num_used(pair) > 0
    in_first_mask(monkeypatch, other.close)
    assert len(in_time(lambda: pair.generate([2], regex=REGEX)).text) == 8
    assert other.finish_reason == "cancelled"
    assert num_used(pair) == 0


def test_another_stream_is_dropped(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = [pair.stream([1], max_new_tokens=9)]
    next(dropped[0])
    in_first_mask(monkeypatch, dropped.clear)
    assert len(in_time(lambda: pair.generate([2], regex=REGEX)).text) == 8
    assert num_used(pair) == 0


def test_the_collector_drops_another_stream(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    circle: list[Any] = [pair.stream([1], max_new_tokens=9)]
    next(circle[0])
    circle.append(circle)
    del circle
    in_first_mask(monkeypatch, gc.collect)
    assert len(in_time(lambda: pair.generate([2], regex=REGEX)).text) == 8
    assert num_used(pair) == 0


def test_the_stream_itself_is_closed(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[TokenStream] = []

    def close() -> None:
        streams[0].close()

    in_first_mask(monkeypatch, close)
    streams.append(pair.stream([2], regex=REGEX))
    assert in_time(lambda: list(streams[0])) == []
    assert streams[0].finish_reason == "cancelled"
    assert num_used(pair) == 0


@pytest.mark.parametrize("use", ["info", "generate", "next", "logits"])
def test_an_engine_that_is_at_work_says_so(pair: Engine, monkeypatch: pytest.MonkeyPatch, use: str) -> None:
    other = pair.stream([1], max_new_tokens=9)
    uses: dict[str, Callable[[], object]] = {
        "info": lambda: pair.info,
        "generate": lambda: pair.generate([3], max_new_tokens=2),
        "next": lambda: next(other),
        "logits": lambda: pair.logits([3]),
    }
    in_first_mask(monkeypatch, uses[use])
    with pytest.raises(InvalidArgumentError, match="in the midst of a round"):
        in_time(lambda: pair.generate([2], regex=REGEX))
    other.close()
    assert num_used(pair) == 0
    assert len(pair.generate([2], regex=REGEX).text) == 8


def test_a_signal_handler_closes_a_stream_in_the_midst_of_a_mask(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    other = pair.stream([1], max_new_tokens=9)
    before = signal.signal(signal.SIGUSR1, lambda *_: other.close())
    try:
        in_first_mask(monkeypatch, lambda: signal.raise_signal(signal.SIGUSR1))
        assert len(pair.generate([2], regex=REGEX).text) == 8
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert num_used(pair) == 0


def test_the_collector_comes_when_a_mask_is_asked_for(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    circle: list[Any] = [pair.stream([1], max_new_tokens=9)]
    next(circle[0])
    circle.append(circle)
    del circle
    answer = MaskCall.answer

    def collecting(self: MaskCall, path: Any, num_path: int, mask_out: Any) -> int:
        gc.collect()
        return answer(self, path, num_path, mask_out)

    monkeypatch.setattr(MaskCall, "answer", collecting)
    assert len(in_time(lambda: pair.generate([2], regex=REGEX)).text) == 8
    assert num_used(pair) == 0


def test_two_engines_drop_each_others_streams(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(tiny_bundle, threads=1, num_sequences=4) as one, Engine(tiny_bundle, threads=1, num_sequences=4) as two:
        for engine in (one, two, one, two):
            circle: list[Any] = [engine.stream([1], max_new_tokens=9)]
            circle.append(circle)
        del circle
        both = threading.Barrier(2)
        fill, turns = Constraint._fill, [True, True]

        def filling(self: Constraint, path: Any, words: Any) -> None:
            if turns and turns.pop():
                both.wait(SECONDS)  # each is in the midst of a step
                gc.collect()
            fill(self, path, words)

        monkeypatch.setattr(Constraint, "_fill", filling)
        threads = [
            threading.Thread(target=engine.generate, args=([2],), kwargs={"regex": REGEX}) for engine in (one, two)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            in_time(thread.join)
        assert num_used(one) == num_used(two) == 0


@pytest.mark.parametrize("shares", ["round", "batch"])
def test_a_signal_handler_closes_a_stream_that_another_thread_iterates(
    pair: Engine, monkeypatch: pytest.MonkeyPatch, shares: str
) -> None:
    """That thread waits for the round which the handler interrupts."""
    other = pair.stream([1], max_new_tokens=60, ignore_eos=True)
    next(other)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(other.result()))

    def close_while_it_waits() -> None:
        thread.start()
        while other._lock.acquire(blocking=False):
            other._lock.release()
            time.sleep(0.001)
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: other.close())
    in_first_mask(monkeypatch, close_while_it_waits)
    faulthandler.dump_traceback_later(SECONDS, exit=True)  # the main thread itself would wait
    try:
        if shares == "round":
            assert len(pair.generate([2], regex=REGEX).text) == 8
        else:
            assert [len(each.text) for each in pair.generate_batch([[2], [3]], regex=REGEX)] == [8, 8]
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGUSR1, before)
    thread.join(SECONDS)
    assert results[0].finish_reason == "cancelled"
    assert num_used(pair) == 0


def test_a_stream_that_its_own_threads_handler_closes_while_it_waits(pair: Engine) -> None:
    """It had asked for a round; those who share the next one go on."""
    rounds = pair._rounds
    one, two = (pair.stream([at], max_new_tokens=9, ignore_eos=True) for at in (1, 2))
    closed, runs = _Step(one.request, owner=1), _Step(two.request, owner=2)
    rounds._waiting += [closed, runs]
    one.close()
    rounds._lead()
    assert closed.outcome == ([], Finish.CANCELLED)
    assert isinstance(runs.outcome, tuple)
    assert len(runs.outcome[0]) > 0
    two.close()


def test_what_is_dropped_waits_for_nobody(pair: Engine) -> None:
    """The collector may come to a thread that holds what another thread waits for while it holds the engine."""
    stream: Any = pair.stream([1, 2, 3], max_new_tokens=8, ignore_eos=True)
    next(stream)
    stream.itself = stream  # only the collector opens the circle
    is_held, is_collected = threading.Event(), threading.Event()

    def hold() -> None:
        with pair._rounds.lock:
            is_held.set()
            is_collected.wait(2 * SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    request = stream.request
    del stream
    in_time(gc.collect)
    assert not request.closed
    is_collected.set()
    holder.join()
    assert request.closed
    assert pair.info.num_free_blocks + pair.info.num_retained_blocks == pair.info.num_blocks


@pytest.mark.parametrize("use", ["generate", "logits"])
def test_circles_are_opened_before_an_engine_is_busy(tiny_bundle: Path, use: str) -> None:
    with Engine(tiny_bundle, threads=1, num_sequences=1) as engine:
        stream: Any = engine.stream([1, 2, 3], max_new_tokens=engine.info.max_context - 3, ignore_eos=True)
        gc.disable()
        try:
            with pytest.raises(EngineBusyError):
                engine.generate([1, 2, 3], max_new_tokens=engine.info.max_context - 3)
            time.sleep(1.1)  # it looks for circles once a second
            stream.itself = stream
            del stream
            if use == "logits":
                assert len(engine.logits([1, 2, 3])) == 3
            else:
                assert engine.generate([1, 2, 3], max_new_tokens=4, ignore_eos=True).stats.num_new_tokens == 4
        finally:
            gc.enable()
