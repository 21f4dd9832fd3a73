"""Engine(queue=...): who finds no room waits for it, in the order in which they came, and can be told to stop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish import Engine
from pilotfish.bindings import ContextFullError, EngineBusyError, InvalidArgumentError, PilotfishError
from pilotfish.runtime.admission import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONTEXT = 256
PROMPT = [7] * 120
OPTIONS: dict[str, Any] = {"max_new_tokens": 100, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine(tiny_bundle: Path) -> Iterator[Engine]:
    """One generation at a time."""
    with Engine(tiny_bundle, max_context=CONTEXT, num_sequences=1) as opened:
        yield opened


@pytest.fixture
def narrow(tiny_bundle: Path) -> Iterator[Callable[[int], Engine]]:
    """Engines for one generation, in whose queue so many may wait."""
    opened: list[Engine] = []

    def make(queue: int) -> Engine:
        opened.append(Engine(tiny_bundle, max_context=CONTEXT, num_sequences=1, queue=queue))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def num_waiting(engine: Engine) -> int:
    return len(engine._admission.waiting)


def in_thread(engine: Engine, pool: ThreadPoolExecutor, prompt: list[int]) -> Any:
    """A generation that another thread asks for, and that waits by the time this returns."""
    before = num_waiting(engine)
    asked = pool.submit(engine.generate, prompt, **OPTIONS)
    wait_until(lambda: num_waiting(engine) > before)
    return asked


def test_four_threads_are_served(engine: Engine) -> None:
    prompts = [[7 + index] * 120 for index in range(4)]
    expected = [engine.generate(prompt, **OPTIONS).token_ids for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda prompt: engine.generate(prompt, **OPTIONS).token_ids, prompts))
    assert found == expected


def test_tasks_are_served_though_they_are_more_than_worker_threads(engine: Engine) -> None:
    expected = engine.generate(PROMPT, **OPTIONS).token_ids

    async def ask() -> list[tuple[int, ...]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        results = await asyncio.gather(*(engine.astream(PROMPT, **OPTIONS).result() for _ in range(12)))
        return [result.token_ids for result in results]

    assert asyncio.run(ask()) == [expected] * 12


def test_the_first_to_come_is_the_first_to_begin(engine: Engine) -> None:
    begun: list[int] = []

    def run(index: int) -> None:
        with engine.stream(PROMPT, **OPTIONS):
            begun.append(index)

    with engine.stream(PROMPT, **OPTIONS) as holder, ThreadPoolExecutor(5) as pool:
        asked = []
        for index in range(5):
            asked.append(pool.submit(run, index))
            wait_until(lambda: num_waiting(engine) == len(asked))
        holder.close()
        for each in asked:
            each.result(20)
    assert begun == [0, 1, 2, 3, 4]


def test_a_batch_waits_for_other_threads_generations(engine: Engine) -> None:
    expected = engine.generate(PROMPT, **OPTIONS).token_ids
    with engine.stream(PROMPT, **OPTIONS) as holder, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(engine.generate_batch, [PROMPT, PROMPT], **OPTIONS)
        wait_until(lambda: num_waiting(engine) == 1)
        holder.close()
        assert [result.token_ids for result in asked.result(20)] == [expected] * 2


def test_who_holds_a_generation_does_not_wait_for_its_own_end(engine: Engine) -> None:
    with engine.stream(PROMPT, **OPTIONS), pytest.raises(EngineBusyError, match="larger num_sequences"):
        engine.generate(PROMPT, **OPTIONS)

    async def ask() -> None:
        async with engine.astream(PROMPT, **OPTIONS) as holder:
            await holder.__anext__()
            await engine.astream(PROMPT, **OPTIONS).result()

    with pytest.raises(EngineBusyError, match="larger num_sequences"):
        asyncio.run(ask())


def test_without_a_queue_nobody_waits(narrow: Callable[[int], Engine]) -> None:
    engine = narrow(0)
    with engine.stream(PROMPT, **OPTIONS), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(engine.generate, PROMPT, **OPTIONS)
        with pytest.raises(EngineBusyError, match=r"cache blocks of 32.*larger num_sequences"):
            asked.result(20)


def test_a_full_queue_refuses(narrow: Callable[[int], Engine]) -> None:
    engine = narrow(1)
    with engine.stream(PROMPT, **OPTIONS) as holder, ThreadPoolExecutor(2) as pool:
        first = in_thread(engine, pool, PROMPT)
        with pytest.raises(EngineBusyError, match=r"the engine is busy, and its queue of 1 is full.*larger queue"):
            pool.submit(engine.generate, PROMPT, **OPTIONS).result(20)
        holder.close()
        assert len(first.result(20).token_ids) == OPTIONS["max_new_tokens"]


def test_what_never_fits_is_refused_at_once(engine: Engine) -> None:
    with engine.stream(PROMPT, **OPTIONS), ThreadPoolExecutor(1) as pool:
        with pytest.raises(ContextFullError, match="the context holds 256"):
            pool.submit(engine.generate, [7] * 256).result(20)
        assert num_waiting(engine) == 0


def test_a_stream_that_is_dropped_lets_the_next_begin(engine: Engine) -> None:
    stream = engine.stream(PROMPT, **OPTIONS)
    with ThreadPoolExecutor(1) as pool:
        asked = in_thread(engine, pool, PROMPT)
        del stream
        assert len(asked.result(20).token_ids) == OPTIONS["max_new_tokens"]


def test_a_waiting_task_can_be_cancelled(engine: Engine) -> None:
    async def ask() -> None:
        waiting = engine.astream(PROMPT, **OPTIONS)
        task = asyncio.ensure_future(waiting.result())
        await asyncio.to_thread(wait_until, lambda: num_waiting(engine) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until, lambda: num_waiting(engine) == 0)

    with engine.stream(PROMPT, **OPTIONS):
        asyncio.run(asyncio.wait_for(ask(), 20))


def test_a_place_that_was_given_up_is_not_taken_by_a_late_worker(engine: Engine) -> None:
    """A task that is cancelled goes, while a worker thread may still be about to ask for it."""
    place = Place(engine._admission, threading.Thread(), lambda: None)
    with engine.stream(PROMPT, **OPTIONS), ThreadPoolExecutor(1) as pool:
        with place:
            pass
        opening = engine.prepare(PROMPT, **OPTIONS)
        assert pool.submit(place.attempt, opening).result(20) is None
        assert num_waiting(engine) == 0
    assert len(engine.generate(PROMPT, **OPTIONS).token_ids) == OPTIONS["max_new_tokens"]


@pytest.mark.parametrize("end", ["cancel", "aclose"])
def test_a_waiting_stream_can_be_ended_by_another_task(engine: Engine, end: str) -> None:
    async def ask() -> None:
        waiting = engine.astream(PROMPT, **OPTIONS)
        task = asyncio.ensure_future(waiting.result())
        await asyncio.to_thread(wait_until, lambda: num_waiting(engine) == 1)
        if end == "cancel":
            waiting.cancel()
            result = await task
            assert (result.token_ids, result.finish_reason) == ((), "cancelled")
            assert result.stats.num_prompt_tokens == len(PROMPT)
        else:
            await waiting.aclose()
            with pytest.raises(InvalidArgumentError, match="closed before it began: it has no result"):
                await task
        assert num_waiting(engine) == 0

    with engine.stream(PROMPT, **OPTIONS):
        asyncio.run(asyncio.wait_for(ask(), 20))


def test_closing_the_engine_ends_the_waiting(narrow: Callable[[int], Engine]) -> None:
    engine = narrow(4)
    holder = engine.stream(PROMPT, **OPTIONS)
    with ThreadPoolExecutor(2) as pool:
        asked = [in_thread(engine, pool, PROMPT) for _ in range(2)]
        engine.close()
        for each in asked:
            with pytest.raises(PilotfishError, match="closed"):
                each.result(20)
    holder.close()


def test_an_engine_that_is_dropped_is_freed_without_the_collector(tiny_bundle: Path) -> None:
    engine = Engine(tiny_bundle, max_context=CONTEXT)
    engine.generate(PROMPT, max_new_tokens=2)
    handle = weakref.ref(engine._handle)
    gc.disable()
    try:
        del engine
        assert handle() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("queue", [-1, 1.5, True, None, 65_537])
def test_a_wrong_queue_is_refused(tiny_bundle: Path, queue: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="queue"):
        Engine(tiny_bundle, queue=queue)
