"""Streams of asyncio: the same events, an event loop that never waits, and tasks that may be cancelled at any time."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pilotfish.bindings import ContextFullError, InvalidArgumentError

if TYPE_CHECKING:
    from pilotfish import Engine
    from pilotfish.runtime import AsyncTokenStream, Event, Result

PROMPT = "asynchronous"


def num_used(engine: Engine) -> int:
    info = engine.info
    return info.num_blocks - info.num_free_blocks - info.num_retained_blocks


async def collect(stream: AsyncTokenStream) -> list[Event]:
    return [event async for event in stream]


@pytest.mark.parametrize("num_draft_tokens", [0, 4, None])
def test_the_events_are_streams(engine: Engine, num_draft_tokens: int | None) -> None:
    expected = list(engine.stream(PROMPT, max_new_tokens=40, num_draft_tokens=num_draft_tokens))
    events = asyncio.run(collect(engine.astream(PROMPT, max_new_tokens=40, num_draft_tokens=num_draft_tokens)))
    assert [(event.token_id, event.text, event.finish_reason) for event in events] == [
        (event.token_id, event.text, event.finish_reason) for event in expected
    ]
    if num_draft_tokens is not None:  # what auto drafts depends on what was accepted before
        assert [event.origin for event in events] == [event.origin for event in expected]
    assert num_used(engine) == 0


def test_result_holds_what_was_taken_before_it(engine: Engine) -> None:
    async def run() -> str:
        async with engine.astream_chat([{"role": "user", "content": "hi"}], max_new_tokens=20) as stream:
            await anext(stream)
            return (await stream.result()).text

    assert asyncio.run(run()) == engine.chat([{"role": "user", "content": "hi"}], max_new_tokens=20).text


def test_streams_of_many_tasks_give_their_own_tokens(engine: Engine) -> None:
    prompts = [f"task {index}" for index in range(4)]
    expected = [engine.generate(prompt, max_new_tokens=30).token_ids for prompt in prompts]

    async def run() -> list[list[Event]]:
        return await asyncio.gather(*(collect(engine.astream(prompt, max_new_tokens=30)) for prompt in prompts))

    assert [tuple(event.token_id for event in events) for events in asyncio.run(run())] == expected
    engine.check()


def test_the_event_loop_runs_during_a_round(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that takes 0.2 s, and a ticker that must tick meanwhile."""
    slow_rounds(engine, monkeypatch, 0.2)

    async def run() -> int:
        ticks = 0
        async with engine.astream(PROMPT, max_new_tokens=2, num_draft_tokens=0) as stream:
            waiting = asyncio.ensure_future(anext(stream))
            while not waiting.done():
                await asyncio.sleep(0.01)
                ticks += 1
        return ticks

    assert asyncio.run(run()) >= 5


def slow_rounds(engine: Engine, monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[float]:
    """Make every round take longer; returns the list that their beginnings are appended to."""
    from pilotfish.runtime import token_stream

    assert engine is not None
    step, begun = token_stream.calls.step_together, []

    def slow(requests: object) -> object:
        begun.append(time.perf_counter())
        time.sleep(seconds)
        return step(requests)  # type: ignore[arg-type]

    monkeypatch.setattr(token_stream.calls, "step_together", slow)
    return begun


def test_cancelling_the_task_ends_the_request_within_one_round(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = slow_rounds(engine, monkeypatch, 0.02)

    async def run() -> None:
        stream = engine.astream(PROMPT, max_new_tokens=200, num_draft_tokens=0, ignore_eos=True)
        task = asyncio.ensure_future(collect(stream))
        await asyncio.sleep(0.15)
        assert num_used(engine) > 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        num_begun = len(begun)
        assert num_begun > 1
        await asyncio.sleep(0.1)
        settled = len(begun)
        assert settled <= num_begun + 1  # its thread may have been about to begin one
        await asyncio.sleep(0.1)
        assert len(begun) == settled
        assert num_used(engine) == 0
        assert await collect(stream) == []

    asyncio.run(run())
    engine.check()


def test_a_timeout_while_the_engine_is_busy_leaves_nothing_behind(engine: Engine) -> None:
    """The task is cancelled while its worker still waits to open the request."""

    async def run() -> None:
        with engine._lock:
            task = asyncio.ensure_future(collect(engine.astream(PROMPT, max_new_tokens=50)))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())  # waits for the worker
    assert num_used(engine) == 0
    engine.check()


def test_a_dropped_stream_frees_its_blocks(engine: Engine) -> None:
    async def run() -> None:
        async for _ in engine.astream(PROMPT, max_new_tokens=200, ignore_eos=True):
            break
        gc.collect()
        assert num_used(engine) == 0

    asyncio.run(run())


def test_cancel_from_another_thread(engine: Engine) -> None:
    async def run() -> str | None:
        events = []
        async with engine.astream(PROMPT, max_new_tokens=200, num_draft_tokens=0, ignore_eos=True) as stream:
            async for event in stream:
                events.append(event)
                if len(events) == 3:
                    canceller = threading.Thread(target=stream.cancel)
                    canceller.start()
                    canceller.join()
            assert 3 <= len(events) <= 4
            return (await stream.result()).finish_reason

    assert asyncio.run(run()) == "cancelled"


def test_two_tasks_on_one_stream_are_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_rounds(engine, monkeypatch, 0.05)

    async def run() -> None:
        async with engine.astream(PROMPT, max_new_tokens=20) as stream:
            first = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.01)
            with pytest.raises(InvalidArgumentError, match="another task"):
                await anext(stream)
            assert (await first).token_id >= 0

    asyncio.run(run())


def test_bad_arguments_show_at_once_and_a_full_context_at_the_first_event(engine: Engine) -> None:
    with pytest.raises(InvalidArgumentError, match="temperature"):
        engine.astream(PROMPT, temperature=-1)
    with pytest.raises(InvalidArgumentError, match="prompt"):
        engine.astream([])
    with pytest.raises(ContextFullError):
        asyncio.run(collect(engine.astream([1] * 1000)))
    assert asyncio.run(collect(engine.astream(PROMPT, max_new_tokens=3)))


def test_a_stream_closed_before_it_began(engine: Engine) -> None:
    async def run() -> None:
        stream = engine.astream(PROMPT, max_new_tokens=3)
        await stream.aclose()
        await stream.aclose()
        assert await collect(stream) == []
        with pytest.raises(InvalidArgumentError, match="no result"):
            await stream.result()

    asyncio.run(run())


def test_a_cancel_before_the_first_event_is_not_lost(engine: Engine) -> None:
    async def begin_cancelled() -> Result:
        stream = engine.astream("Once", max_new_tokens=150, ignore_eos=True)
        stream.cancel()
        return await stream.result()

    async def cancel_while_it_opens() -> Result:
        stream = engine.astream("Once", max_new_tokens=150, ignore_eos=True)
        with engine._lock:  # the worker waits for it to open the generation
            first = asyncio.ensure_future(stream.result())
            await asyncio.sleep(0.05)
            stream.cancel()
        return await first

    for ask in (begin_cancelled, cancel_while_it_opens):
        result = asyncio.run(ask())
        assert (result.finish_reason, result.token_ids, result.text) == ("cancelled", (), "")


def test_a_cancel_in_every_state_of_a_plain_stream(engine: Engine) -> None:
    for taken in (0, 1, 5):
        with engine.stream("Once", max_new_tokens=150, ignore_eos=True, num_draft_tokens=0, explain=True) as stream:
            for _ in range(taken):
                next(stream)
            stream.cancel()
            result = stream.result()
        assert result.finish_reason == "cancelled"
        assert len(result.token_ids) <= taken + 1
        assert len(result.rounds) == max(0, len(result.token_ids) - 1)
    ended = engine.stream("Once", max_new_tokens=3, ignore_eos=True)
    assert ended.result().finish_reason == "length"
    ended.cancel()
    assert ended.result().finish_reason == "length"
