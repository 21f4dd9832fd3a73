"""Makes a drawn request of an engine, in the way that it says, and keeps all that a user would see of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pilotfish.bindings import BundleCorruptError, BundleVersionError, EngineBusyError, PilotfishError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cases import Case

    from pilotfish import Engine, Result, TokenStream
    from pilotfish.runtime import Event

PATIENCE_SECONDS = 240  # for an engine that is busy
ASYNCHRONOUS = ("astream", "acancel", "cancel task", "adrop")
CUT_OFF = ("cancel", "cancel elsewhere", "close", "close elsewhere", "drop", "acancel", "cancel task", "adrop")
MESSAGES = ("hi", "é?", "why is the sea blue")
NUM_CHOICES = 3


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
    """The same to its end, as what is cut off is compared with, and one by one."""
    if case.way == "choices":
        return dataclasses.replace(case, way="one by one")
    to_end = (*CUT_OFF, "stream", "astream", "session")
    return dataclasses.replace(case, way="generate") if case.way in to_end else case


def _attempt(engine: Engine, case: Case) -> Seen:
    prompt = list(case.prompts[0])
    if case.way in WHOLE:
        return seen_of(WHOLE[case.way](engine, case))
    if case.way == "logits":
        rows = engine.logits(prompt)
        engine.check()
        return Seen(texts=(rows.tobytes().hex(),))
    if case.way in ASYNCHRONOUS:
        return asyncio.run(_asynchronous(engine, prompt, case))
    return _streamed(engine, prompt, case)


def _generate(engine: Engine, case: Case) -> list[Result]:
    return [engine.generate(list(case.prompts[0]), **case.options)]


def _batch(engine: Engine, case: Case) -> list[Result]:
    return engine.generate_batch([list(each) for each in case.prompts], **case.options)


def _chat(engine: Engine, case: Case) -> list[Result]:
    return [engine.chat([{"role": "user", "content": MESSAGES[case.cut % len(MESSAGES)]}], **case.options)]


def _one_by_one(engine: Engine, case: Case) -> list[Result]:
    return [engine.generate(list(case.prompts[0]), **options) for options in _choices(case)]


def _choices(case: Case) -> list[dict[str, Any]]:
    """Options of several answers to one prompt, as a server asks for them."""
    return [case.options | {"seed": (case.options["seed"] + index) % 2**64} for index in range(NUM_CHOICES)]


def _step_choices(engine: Engine, case: Case) -> list[Result]:
    """By one thread, which opens one more before each round, as far as there is room."""
    openings = [engine.prepare(list(case.prompts[0]), **options) for options in _choices(case)]
    streams: list[TokenStream] = []
    errors: dict[int, PilotfishError] = {}
    with contextlib.ExitStack() as stack:
        while len(streams) < len(openings) or any(_is_running(stream) for stream in streams):
            if len(streams) < len(openings):
                try:
                    streams.append(stack.enter_context(openings[len(streams)]()))
                except EngineBusyError:
                    if not any(_is_running(stream) for stream in streams):
                        raise
            running = [stream for stream in streams if _is_running(stream)]
            for stream, error in zip(running, engine.step_together(running), strict=True):
                if error is not None:
                    errors[streams.index(stream)] = error
        if errors:
            raise errors[min(errors)]
        return [stream.result() for stream in streams]


def _is_running(stream: TokenStream) -> bool:
    return stream.finish_reason is None


def _go_through_a_file(engine: Engine, case: Case) -> list[Result]:
    """With what is cached of the prompt; copies of the file that are cut short or altered are refused."""
    prompt = list(case.prompts[0])
    draw = random.Random(case.name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session"
        num_cached = engine.save_session(path, prompt, note=case.name)
        content = path.read_bytes()
        at = draw.randrange(len(content))
        altered = content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
        for spoiled in (content[:at], altered, content + b"\0"):
            path.with_suffix(".spoiled").write_bytes(spoiled)
            try:
                engine.load_session(path.with_suffix(".spoiled"))
            except (BundleCorruptError, BundleVersionError):
                continue
            raise AssertionError(f"a session that is spoiled at {at} of {len(content)} bytes was loaded")
        loaded = engine.load_session(path)
    if (loaded.token_ids, loaded.num_cached_tokens, loaded.note) != (tuple(prompt), num_cached, case.name):
        raise AssertionError(f"a session came back as {loaded}")
    return _generate(engine, case)


WHOLE: dict[str, Callable[[Engine, Case], list[Result]]] = {
    "generate": _generate,
    "batch": _batch,
    "chat": _chat,
    "one by one": _one_by_one,
    "choices": _step_choices,
    "session": _go_through_a_file,
}
"""Ways that give whole results."""


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
