"""Makes a drawn request of an engine, in the way that it says, and keeps all that a user would see of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pilotfish.bindings import EngineBusyError, PilotfishError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cases import Case

    from pilotfish import Engine, Result
    from pilotfish.runtime import Event

PATIENCE_SECONDS = 240  # for an engine that is busy
ASYNCHRONOUS = ("astream", "acancel", "cancel task", "adrop")
CUT_OFF = ("cancel", "cancel elsewhere", "close", "close elsewhere", "drop", "acancel", "cancel task", "adrop")
MESSAGES = ("hi", "é?", "why is the sea blue")


class Seen(NamedTuple):
    """What came of a request. Numbers are as text, so that they are equal where all their bits are."""

    token_ids: tuple[tuple[int, ...], ...] = ()
    logprobs: tuple[tuple[str, ...], ...] = ()
    top_logprobs: tuple[tuple[str, ...], ...] = ()
    texts: tuple[str, ...] = ()
    finish_reasons: tuple[str | None, ...] = ()
    error: str = ""


def perform(engine: Engine, case: Case) -> Seen:
    """The request, again and again while the engine has no room for it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        seen = _once(engine, case)
        if not seen.error.startswith(EngineBusyError.__name__) or time.monotonic() > deadline:
            return seen
        time.sleep(0.002)


def _once(engine: Engine, case: Case) -> Seen:
    try:
        return _attempt(engine, case)
    except PilotfishError as error:
        return Seen(error=f"{type(error).__name__}: {error}")


def alone(case: Case) -> Case:
    """The same to its end, as what is cut off is compared with."""
    return dataclasses.replace(case, way="generate") if case.way in (*CUT_OFF, "stream", "astream") else case


def _attempt(engine: Engine, case: Case) -> Seen:
    prompt = list(case.prompts[0])
    if case.way == "generate":
        return seen_of([engine.generate(prompt, **case.options)])
    if case.way == "batch":
        return seen_of(engine.generate_batch([list(each) for each in case.prompts], **case.options))
    if case.way == "chat":
        content = MESSAGES[case.cut % len(MESSAGES)]
        return seen_of([engine.chat([{"role": "user", "content": content}], **case.options)])
    if case.way == "logits":
        rows = engine.logits(prompt)
        engine.check()
        return Seen(texts=(rows.tobytes().hex(),))
    if case.way in ASYNCHRONOUS:
        return asyncio.run(_asynchronous(engine, prompt, case))
    return _streamed(engine, prompt, case)


def seen_of(results: Iterable[Result]) -> Seen:
    """What results say; times and counters apart."""
    results = list(results)
    return Seen(
        tuple(result.token_ids for result in results),
        tuple(tuple(map(repr, result.logprobs)) for result in results),
        tuple(tuple(map(repr, result.top_logprobs)) for result in results),
        tuple(result.text for result in results),
        tuple(result.finish_reason for result in results),
    )


def _seen_of_events(events: list[Event], case: Case) -> Seen:
    reports = case.options.get("logprobs", 0) > 0
    return Seen(
        (tuple(event.token_id for event in events),),
        (tuple(repr(event.logprob) for event in events),),
        (tuple(repr(event.top_logprobs) for event in events if reports),),
        ("".join(event.text for event in events),),
        (events[-1].finish_reason if events else None,),
    )


def _streamed(engine: Engine, prompt: list[int], case: Case) -> Seen:
    stream = engine.stream(prompt, **case.options)
    if case.way == "stream":
        return _seen_of_events(list(stream), case)
    if case.way == "drop":
        events = [event for _, event in zip(range(case.cut), stream, strict=False)]
        stream.itself = stream  # type: ignore[attr-defined]  # a circle, which only the collector opens
        return _seen_of_events(events, case)
    if case.way.endswith("elsewhere"):
        end = stream.cancel if case.way == "cancel elsewhere" else stream.close
        other = threading.Thread(target=_end_later, args=(end, case.cut))
        other.start()
        result = stream.result()
        other.join()
        return seen_of([result])
    for _ in zip(range(case.cut), stream, strict=False):
        pass
    (stream.cancel if case.way == "cancel" else stream.close)()
    return seen_of([stream.result()])


def _end_later(end: Callable[[], None], milliseconds: int) -> None:
    time.sleep(milliseconds / 1000)
    end()


async def _asynchronous(engine: Engine, prompt: list[int], case: Case) -> Seen:
    stream = engine.astream(prompt, **case.options)
    if case.way == "astream":
        return _seen_of_events([event async for event in stream], case)
    events: list[Event] = []
    if case.way == "cancel task":
        await _cancel_task(stream, events, case.cut)
        return _seen_of_events(events, case)
    while len(events) < case.cut:
        event = await anext(stream, None)
        if event is None:
            break
        events.append(event)
    if case.way == "acancel":
        stream.cancel()
        return seen_of([await stream.result()])
    return _seen_of_events(events, case)


async def _cancel_task(stream: Any, events: list[Event], milliseconds: int) -> None:
    async def collect() -> None:
        async for event in stream:
            events.append(event)  # noqa: PERF401 - those before it is cancelled count

    task = asyncio.create_task(collect())
    await asyncio.sleep(milliseconds / 1000)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await stream.aclose()
