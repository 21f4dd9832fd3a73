"""In-flight batching: generations that share passes write what they write alone, to the bit, and fail alone.

Every kind of head is in test_heads and test_eagle, every type of cache in test_trees.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from every_option import EVERY_OPTION
from shared_passes import check_the_same_together, parts

from pilotfish import Engine
from pilotfish.bindings import (
    ContextFullError,
    Finish,
    InvalidArgumentError,
    NoTokenLeftError,
    PilotfishError,
    calls,
    limits,
)
from pilotfish.runtime.batch import run_rounds
from pilotfish.runtime.rounds import Rounds
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pilotfish.runtime.token_stream import TokenStream

NUM_SEQUENCES = 4
NEW_TOKENS = 40


@pytest.fixture(scope="module")
def pair(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=2, num_sequences=NUM_SEQUENCES, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        yield engine
        engine.check()


@pytest.fixture
def num_a_step(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests each step had."""
    step, found = calls.step_together, []

    def counted(requests: list[Any]) -> Any:
        found.append(len(requests))
        return step(requests)

    monkeypatch.setattr(calls, "step_together", counted)
    return found


def prompts(num_prompts: int = 7) -> list[list[int]]:
    chooser = random.Random(3)
    lengths = (1, 40, 3, 130, 33, 7, 64, 20, 2)
    return [[chooser.randrange(256) for _ in range(length)] for length in lengths[:num_prompts]]


def test_every_source_gives_the_tokens_and_logprobs_of_each_alone(pair: Engine) -> None:
    for source in sources_of(pair):
        check_the_same_together(pair, prompts(), max_new_tokens=NEW_TOKENS, **source.options)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0, "seed": 4},
        {"temperature": 0.8, "seed": 5, **EVERY_OPTION},
        {"temperature": 0.8, "seed": 6, "num_draft_tokens": 5},
        {"temperature": 0.9, "seed": 7, "tree": "dynamic", "tree_nodes": 10, "tree_depth": 3},
        {"repetition_penalty": 1.3, "logit_bias": {257: 6.0}},
        {"regex": "[ab]{4}[a-z]*", "num_draft_tokens": 3},
        {"echo": True},
        {"logprobs": 3},
    ],
    ids=str,
)
def test_every_option_does(pair: Engine, options: dict[str, Any]) -> None:
    check_the_same_together(pair, prompts(), max_new_tokens=NEW_TOKENS, reuse_prefix=False, **options)


def test_rounds_that_do_not_fit_one_pass_take_several(tiny_bundle: Path) -> None:
    """A pass has room for all drafts of one request, and a token of each of the others."""
    with Engine(tiny_bundle, threads=2, num_sequences=NUM_SEQUENCES, max_draft_tokens=63) as engine:
        check_the_same_together(engine, prompts(), max_new_tokens=NEW_TOKENS, num_draft_tokens=63)
        check_the_same_together(engine, prompts(), max_new_tokens=NEW_TOKENS, num_draft_tokens=30)


def test_more_requests_than_a_pass_has_sequences(tiny_bundle: Path) -> None:
    with Engine(tiny_bundle, threads=2, num_sequences=limits.MOST_TOGETHER + 3, max_context=256) as engine:
        check_the_same_together(engine, prompts(), max_new_tokens=NEW_TOKENS)
        alone = [parts(engine.generate([1 + at], max_new_tokens=9)) for at in range(limits.MOST_TOGETHER + 3)]
        streams = [engine.stream([1 + at], max_new_tokens=9) for at in range(limits.MOST_TOGETHER + 3)]
        assert run_together(streams) == alone


def run_together(streams: list[TokenStream]) -> list[tuple[object, ...]]:
    while running := [stream for stream in streams if stream.finish_reason is None]:
        run_rounds(running, Rounds(limits.MOST_TOGETHER))
    return [parts(stream.result()) for stream in streams]


def test_plain_rounds_share_one_pass(pair: Engine) -> None:
    """What verification took is the same time for all, to the bit: it was one pass each time."""
    results = pair.generate_batch(
        prompts(NUM_SEQUENCES), max_new_tokens=NEW_TOKENS, ignore_eos=True, source="plain", reuse_prefix=False
    )
    assert len({result.stats.verify_seconds for result in results}) == 1
    assert {result.stats.num_rounds for result in results} == {NEW_TOKENS - 1}


@pytest.mark.parametrize(
    "options",
    [{"num_draft_tokens": 4}, {"tree": "dynamic", "tree_nodes": 10, "tree_depth": 3}, {"tree": "dynamic"}],
    ids=str,
)
def test_requests_draft_in_the_same_passes(pair: Engine, options: dict[str, Any]) -> None:
    """What drafting took is the same time for all, to the bit: each of their passes was one."""
    options = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "source": "draft", **options}
    streams = [pair.stream([at], **options) for at in range(3)]
    for _ in range(3):
        run_rounds(streams, Rounds(limits.MOST_TOGETHER))
    stats = [stream.stats for stream in streams]
    assert all(each.num_drafted > 0 for each in stats)
    assert len({each.draft_seconds for each in stats}) == 1
    run_together(streams)


def test_a_prompt_begins_as_soon_as_another_ends(pair: Engine, num_a_step: list[int]) -> None:
    ends = [pair.generate([at], max_new_tokens=1 + 5 * at, ignore_eos=True).token_ids for at in range(9)]
    num_a_step.clear()
    found = pair.generate_batch([[at] for at in range(9)], max_new_tokens=41, ignore_eos=True)
    assert [result.token_ids[: len(end)] for result, end in zip(found, ends, strict=True)] == ends
    # 9 of 41 rounds at most in places for 4: the last one or two have fewer.
    assert num_a_step.count(NUM_SEQUENCES) > len(num_a_step) / 2
    assert pair.generate_batch([]) == []


def test_prompts_wait_for_blocks_that_others_hold(pair: Engine) -> None:
    held = [pair.stream("held", max_new_tokens=NEW_TOKENS, ignore_eos=True) for _ in range(NUM_SEQUENCES - 1)]
    for stream in held:
        next(stream)
    context = pair.info.max_context
    long = [[at] * (context - 100) for at in range(3)]
    results = pair.generate_batch(long, max_new_tokens=90, ignore_eos=True)
    assert [len(result.token_ids) for result in results] == [90] * 3
    for stream in held:
        stream.close()
    assert [parts(result) for result in results] == [
        parts(pair.generate(prompt, max_new_tokens=90, ignore_eos=True)) for prompt in long
    ]


def test_bad_prompts_are_refused_before_anything_runs(pair: Engine, num_a_step: list[int]) -> None:
    with pytest.raises(ContextFullError, match=r"prompt 1 has \d+ tokens, the context holds"):
        pair.generate_batch([[1], [2] * pair.info.max_context])
    with pytest.raises(InvalidArgumentError, match="the prompt is empty"):
        pair.generate_batch([[1], []])
    with pytest.raises(InvalidArgumentError, match="prompts is 'text', must be a sequence of prompts"):
        pair.generate_batch("text")
    with pytest.raises(InvalidArgumentError, match="temperature"):
        pair.generate_batch([[1]], temperature=-1)
    assert num_a_step == []


def test_a_failure_is_its_requests_own(pair: Engine) -> None:
    nothing = {index: float("-inf") for index in range(258)}
    streams = [
        pair.stream([5], max_new_tokens=20, ignore_eos=True),
        pair.stream([6], max_new_tokens=20, logit_bias=nothing),
        pair.stream([7], max_new_tokens=20, ignore_eos=True),
    ]
    requests = [stream.request for stream in streams]
    outcomes = calls.step_together(requests)
    assert isinstance(outcomes[1], NoTokenLeftError)
    assert str(outcomes[1]) != ""
    for index in (0, 2):
        tokens, finish = outcomes[index]  # type: ignore[misc]
        assert (len(tokens), finish) == (1, Finish.NONE)
    again = calls.step_together(requests)
    assert isinstance(again[1], InvalidArgumentError)
    assert not isinstance(again[0], PilotfishError)
    for stream in streams:
        stream.close()
    pair.check()


def test_one_that_fails_ends_generate_batch_and_frees_all(pair: Engine) -> None:
    nothing = {index: float("-inf") for index in range(258)}
    with pytest.raises(NoTokenLeftError):
        pair.generate_batch([[1], [2]], logit_bias=nothing)
    info = pair.info
    assert info.num_free_blocks + info.num_retained_blocks == info.num_blocks


def test_a_request_twice_or_of_another_engine_is_refused(pair: Engine, plain_bundle: Path) -> None:
    with pair.stream([1], max_new_tokens=4) as one, Engine(plain_bundle, threads=1) as other:
        with pytest.raises(InvalidArgumentError, match="request 1 is request 0 again"):
            calls.step_together([one.request, one.request])
        with (
            other.stream([1], max_new_tokens=4) as of_other,
            pytest.raises(InvalidArgumentError, match="request 1 is of another engine than request 0"),
        ):
            calls.step_together([one.request, of_other.request])
        assert calls.step_together([]) == []
        assert len(one.result().token_ids) == 4


def test_what_is_no_stream_of_the_engine_is_refused(pair: Engine, plain_bundle: Path) -> None:
    with pair.stream([1], max_new_tokens=4) as one, Engine(plain_bundle, threads=1) as other:
        with pytest.raises(InvalidArgumentError, match=r"streams\[0\] is <.*>, must be a stream of this engine"):
            other.step_together([one])
        with pytest.raises(InvalidArgumentError, match=r"streams\[1\] is 1, must be a stream of this engine"):
            pair.step_together([one, 1])  # type: ignore[list-item]
        with pytest.raises(InvalidArgumentError, match="streams is 'one', must be a sequence of streams"):
            pair.step_together("one")  # type: ignore[arg-type]
        assert pair.step_together([one]) == [None]
        assert len(one.result().token_ids) == 4
        with pytest.raises(InvalidArgumentError, match="the generation is closed"):
            pair.step_together([one])


def test_a_cancelled_one_ends_and_the_others_go_on(pair: Engine) -> None:
    streams = [pair.stream([at], max_new_tokens=30, ignore_eos=True) for at in range(3)]
    for _ in range(3):
        run_rounds(streams, Rounds(limits.MOST_TOGETHER))
    streams[1].cancel()
    run_together(streams)
    assert [stream.finish_reason for stream in streams] == ["length", "cancelled", "length"]
    assert 0 < len(streams[1].result().token_ids) < 30


def test_threads_share_passes(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prompts(NUM_SEQUENCES)
    expected = [parts(pair.generate(prompt, max_new_tokens=200, ignore_eos=True)) for prompt in asked]
    streams = [pair.stream(prompt, max_new_tokens=200, ignore_eos=True) for prompt in asked]
    step, num_a_step = calls.step_together, list[int]()

    def held_at_first(requests: list[Any]) -> Any:
        """The first round begins when all other threads wait for one."""
        deadline = time.monotonic() + 100
        while not num_a_step and len(pair._rounds._waiting) + len(requests) < NUM_SEQUENCES:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        num_a_step.append(len(requests))
        return step(requests)

    monkeypatch.setattr(calls, "step_together", held_at_first)
    with ThreadPoolExecutor(NUM_SEQUENCES) as threads:
        assert list(threads.map(lambda stream: parts(stream.result()), streams)) == expected
    # How many of the later rounds are shared depends on what else the machine does.
    assert max(num_a_step) >= NUM_SEQUENCES - 1


def test_a_thread_that_pauses_holds_nobody_up(pair: Engine) -> None:
    """Who had a part in the last pass is waited for once, a moment."""
    with pair.stream("paused", max_new_tokens=100, ignore_eos=True) as paused:
        started = threading.Event()

        def pause() -> None:
            for _ in range(3):
                next(paused)
            started.set()

        thread = threading.Thread(target=pause)
        thread.start()
        started.wait()
        thread.join()
        begin = time.monotonic()
        assert len(pair.generate("goes on", max_new_tokens=100, ignore_eos=True).token_ids) == 100
        assert time.monotonic() - begin < 20
        assert paused.finish_reason is None


def test_a_long_prompt_does_not_hold_up_who_decodes(tiny_bundle: Path) -> None:
    """It runs a chunk a step: the others write a token in each of them."""
    with Engine(tiny_bundle, threads=2, num_sequences=3, prefill_chunk=32) as engine:
        long = [[at % 250 for at in range(200 + index)] for index in range(2)]
        alone = [parts(engine.generate(prompt, max_new_tokens=9, reuse_prefix=False)) for prompt in long]
        other = engine.stream([3], max_new_tokens=60, source="plain", ignore_eos=True)
        next(other)
        streams = [engine.stream(prompt, max_new_tokens=9, reuse_prefix=False) for prompt in long]
        num_steps = 0
        while any(stream.stats.num_new_tokens == 0 for stream in streams):
            before = other.stats.num_new_tokens
            run_rounds([streams[0], other, streams[1]], Rounds(3))
            assert other.stats.num_new_tokens == before + 1
            num_steps += 1
        assert num_steps == 2 * 7
        assert run_together(streams) == alone
        assert [stream.stats.num_prefilled_target for stream in streams] == [200, 201]
        other.close()
        engine.check()


def test_chunks_are_as_small_as_the_others_patience_asks(tiny_bundle: Path) -> None:
    """A bound that nothing keeps gives the least chunks, a wide one those of prefill_chunk; the bits are the same."""
    prompt = [at % 250 for at in range(100)]
    chunks = {}
    for max_wait_ms in (1, 60000, None):
        options: dict[str, Any] = {"num_sequences": 2, "prefill_chunk": 48, "max_wait_ms": max_wait_ms}
        with Engine(tiny_bundle, threads=1, calibration="off", **options) as engine:
            alone = parts(engine.generate(prompt, max_new_tokens=5, reuse_prefix=False))
            other = engine.stream([3], max_new_tokens=120, source="plain", ignore_eos=True)
            next(other)
            stream = engine.stream(prompt, max_new_tokens=5, reuse_prefix=False)
            num_steps = 0
            while stream.stats.num_new_tokens == 0:
                engine.step_together([stream, other])
                num_steps += 1
            chunks[max_wait_ms] = num_steps
            assert parts(stream.result()) == alone
            other.close()
            engine.check()
    assert chunks[60000] <= chunks[1] <= 25
    assert chunks[None] == 3


def test_a_prompt_that_is_cancelled_between_chunks_frees_its_cache(tiny_bundle: Path) -> None:
    with Engine(tiny_bundle, threads=2, num_sequences=2, prefill_chunk=32) as engine:
        stream = engine.stream(list(range(200)), max_new_tokens=9)
        run_rounds([stream], Rounds(2))
        assert (stream.stats.num_new_tokens, stream.finish_reason) == (0, None)
        stream.cancel()
        run_rounds([stream], Rounds(2))
        assert (stream.finish_reason, stream.result().token_ids) == ("cancelled", ())
        assert engine.info.num_free_blocks + engine.info.num_retained_blocks == engine.info.num_blocks
        engine.check()
