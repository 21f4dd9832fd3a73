"""Events, stop strings, logprobs, cancellation and threads: the same with and without speculation."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from pilotfish import Engine

DRAFT_TOKENS = [0, 1, 4, 8, None]
PROMPT = "streaming"


@pytest.mark.parametrize("num_draft_tokens", DRAFT_TOKENS)
def test_events_add_up_to_the_result(engine: Engine, num_draft_tokens: int | None) -> None:
    with engine.stream(PROMPT, max_new_tokens=60, num_draft_tokens=num_draft_tokens) as stream:
        events = list(stream)
        result = stream.result()
    assert "".join(event.text for event in events) == result.text == engine.decode(result.token_ids)
    assert tuple(event.token_id for event in events) == result.token_ids
    assert [event.finish_reason for event in events] == [None] * (len(events) - 1) + [result.finish_reason]
    seconds = [event.seconds for event in events]
    assert seconds == sorted(seconds)
    origins = {event.origin for event in events}
    if num_draft_tokens is None:  # as many as pay may be none, by what this machine has measured
        assert (origins == {"plain"}) == (result.stats.num_drafted == 0)
    else:
        assert origins == {"plain"} if num_draft_tokens == 0 else {"accepted", "corrected"} <= origins
    accepted = sum(event.origin == "accepted" for event in events)
    assert (result.stats.num_accepted, result.stats.num_new_tokens) == (accepted, len(events))


@pytest.mark.parametrize("num_draft_tokens", DRAFT_TOKENS)
def test_logprobs_are_the_targets(engine: Engine, num_draft_tokens: int | None) -> None:
    prompt = engine.encode(PROMPT)
    events = list(engine.stream(prompt, max_new_tokens=30, num_draft_tokens=num_draft_tokens, temperature=0.9, seed=1))
    ids = [event.token_id for event in events]
    logits = engine.logits(prompt + ids)[len(prompt) - 1 : -1].astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = logprobs[np.arange(len(ids)), ids]
    np.testing.assert_allclose([event.logprob for event in events], expected, atol=1e-4)


@pytest.mark.parametrize("num_draft_tokens", DRAFT_TOKENS)
def test_a_stop_string_cuts_the_text_at_its_first_occurrence(engine: Engine, num_draft_tokens: int | None) -> None:
    free = engine.generate(PROMPT, max_new_tokens=60, num_draft_tokens=0, ignore_eos=True)
    # Half of the random bytes are no text; a replacement character may stand for a character still to come.
    pairs = {free.text[start : start + 2] for start in range(len(free.text) - 1)}
    stops = [pair for pair in pairs if "\N{REPLACEMENT CHARACTER}" not in pair]
    assert len(stops) >= 4
    for stop in stops:
        result = engine.generate(
            PROMPT, max_new_tokens=60, num_draft_tokens=num_draft_tokens, ignore_eos=True, stop=["never seen", stop]
        )
        assert result.finish_reason == "stop"
        assert result.text == free.text[: free.text.index(stop)]
        assert result.token_ids == free.token_ids[: len(result.token_ids)]
        assert result.stats.num_new_tokens == len(result.token_ids)
        assert stop in engine.decode(result.token_ids)
        assert stop not in engine.decode(result.token_ids[:-1])


def test_text_that_only_begins_a_stop_string_comes_out_in_the_end(engine: Engine) -> None:
    free = engine.generate(PROMPT, max_new_tokens=20, ignore_eos=True)
    stop = free.text[-2:] + "never"
    result = engine.generate(PROMPT, max_new_tokens=20, ignore_eos=True, stop=stop)
    assert (result.text, result.finish_reason) == (free.text, "length")


def test_chat_is_the_rendered_template(engine: Engine) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert engine.decode(engine.encode_chat(messages)) == "user\nhi\nassistant\n"
    chat = engine.chat(messages, max_new_tokens=10)
    assert chat.token_ids == engine.generate(engine.encode_chat(messages), max_new_tokens=10).token_ids
    assert "".join(event.text for event in engine.stream_chat(messages, max_new_tokens=10)) == chat.text


def test_cancel_from_another_thread(engine: Engine) -> None:
    with engine.stream(PROMPT, max_new_tokens=200, ignore_eos=True) as stream:
        first = next(stream)
        canceller = threading.Thread(target=stream.cancel)
        canceller.start()
        canceller.join()
        result = stream.result()
    assert result.finish_reason == "cancelled"
    assert result.token_ids[0] == first.token_id
    assert len(result.token_ids) < 200


@pytest.mark.parametrize("num_draft_tokens", [0, 8])
def test_cancel_while_another_thread_runs_rounds(engine: Engine, num_draft_tokens: int) -> None:
    """The round that runs then is the last one."""
    reached, events = threading.Event(), []
    with engine.stream(PROMPT, max_new_tokens=200, num_draft_tokens=num_draft_tokens, ignore_eos=True) as stream:

        def run() -> None:
            for event in stream:
                events.append((time.perf_counter(), event))
                if len(events) >= 5:
                    reached.set()
                    time.sleep(0.002)

        reader = threading.Thread(target=run)
        reader.start()
        assert reached.wait(20)
        stream.cancel()
        cancelled = time.perf_counter()
        reader.join()
        assert stream.finish_reason == "cancelled"
    late = [event.origin for seconds, event in events if seconds > cancelled]
    # What a round gave earlier may still be read, and one round may have been running.
    assert sum(origin in ("plain", "corrected", "bonus") for origin in late) <= 2


def test_events_carry_the_time_since_the_request(engine: Engine) -> None:
    start = time.perf_counter()
    with engine.stream(PROMPT, max_new_tokens=30, num_draft_tokens=4) as stream:
        for event in stream:
            assert 0 < event.seconds <= time.perf_counter() - start
        stats = stream.stats
    passes = stats.prefill_seconds + stats.draft_seconds + stats.verify_seconds
    assert passes <= event.seconds + 0.01


def test_a_closed_stream_yields_nothing_more(engine: Engine) -> None:
    stream = engine.stream(PROMPT, max_new_tokens=50, ignore_eos=True)
    next(stream)
    stream.close()
    stream.close()
    assert list(stream) == []
    assert stream.finish_reason == "cancelled"
    assert stream.stats.num_prompt_tokens == len(PROMPT)


def test_a_stream_that_another_thread_closes_just_ends(engine: Engine) -> None:
    for _ in range(10):
        stream = engine.stream(PROMPT, max_new_tokens=200, ignore_eos=True, source="plain")
        next(stream)
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(list, stream)
            stream.close()
            assert len(rest.result()) < 200


def test_other_python_threads_run_during_a_call(engine: Engine) -> None:
    """One call of about half a second, and a thread that counts: with the GIL held it could not."""
    repeats = max(1, int(0.5 / engine.time_pass(64, context=64, num_repeats=3).min()))
    count, stop = 0, threading.Event()

    def run() -> None:
        nonlocal count
        while not stop.is_set():
            count += 1
            time.sleep(0.001)

    counter = threading.Thread(target=run)
    counter.start()
    before = count
    engine.time_pass(64, context=64, num_repeats=repeats)
    counted = count - before
    stop.set()
    counter.join()
    assert counted > 20


def test_threads_share_an_engine(engine: Engine) -> None:
    prompts = [f"thread {index}" for index in range(4)]
    expected = [engine.generate(prompt, max_new_tokens=80).token_ids for prompt in prompts]
    results: dict[int, tuple[int, ...]] = {}

    def run(index: int) -> None:
        results[index] = engine.generate(prompts[index], max_new_tokens=80).token_ids

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[index] for index in range(4)] == expected
    engine.check()
