"""What a step left behind, asked for in any order: reports and stops are exact and stay within their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish.bindings import CallbackFailedError, InvalidArgumentError, Mask, RequestHandle, calls
from pilotfish.bindings._ffi import ffi, lib
from pilotfish.runtime.options import GenerateOptions

if TYPE_CHECKING:
    from pilotfish import Engine

PROMPT = list(b"A step and what it leaves behind. A step and ")
NUM_TOP = 3
CAPACITY = 64
UNTOUCHED = -77


class Request:
    """A request as a C program has it."""

    def __init__(self, engine: Engine, *, mask: Mask | None = None, **options: Any) -> None:
        asked = GenerateOptions(logprobs=NUM_TOP, **{"max_new_tokens": 20, "ignore_eos": True} | options)
        request = asked.to_request(has_draft=True, max_draft_tokens=8, mask=mask)
        self.handle: RequestHandle = calls.request_open(engine._handle, np.array(PROMPT, np.int32), request)

    def step(self, capacity: int = CAPACITY) -> int:
        """The number of tokens, or a status below zero."""
        handle = self.handle
        status = int(lib.pf_request_step(handle.pointer, handle.tokens, capacity, handle.num_tokens, handle.finish))
        return int(handle.num_tokens[0]) if status == lib.PF_OK else status

    def num_reported(self) -> int:
        """Rows that are written to arrays which have room for any step's."""
        ids = ffi.new("int32_t[]", [UNTOUCHED] * CAPACITY * NUM_TOP)
        logprobs = ffi.new("float[]", [UNTOUCHED] * CAPACITY * NUM_TOP)
        assert lib.pf_request_get_top_logprobs(self.handle.pointer, ids, logprobs) == lib.PF_OK
        written = [value != UNTOUCHED for value in ids]
        assert written == [value != UNTOUCHED for value in logprobs]
        count = sum(written)
        assert written == [True] * count + [False] * (len(written) - count)
        return count // NUM_TOP

    def stop(self, num_tokens: int) -> int:
        return int(lib.pf_request_stop(self.handle.pointer, num_tokens))


def test_a_step_reports_the_tokens_that_it_wrote_and_no_others(engine: Engine) -> None:
    request = Request(engine, num_draft_tokens=4)
    assert request.num_reported() == 0
    while not request.handle.finish[0]:
        num_tokens = request.step()
        assert request.num_reported() == num_tokens == request.num_reported()
    for _ in range(3):
        assert request.step() == 0
        assert request.num_reported() == 0
        assert request.stop(0) == request.stop(1) == lib.PF_INVALID_ARGUMENT


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_a_cancelled_step_reports_nothing(engine: Engine, num_steps: int) -> None:
    request = Request(engine, num_draft_tokens=4)
    for _ in range(num_steps):
        assert request.step() > 0
    calls.request_cancel(request.handle)
    assert request.num_reported() >= num_steps > 0 or num_steps == 0
    assert request.step() == 0
    assert request.num_reported() == 0
    assert request.stop(0) == lib.PF_INVALID_ARGUMENT


def test_a_cancelled_stream_ends(engine: Engine) -> None:
    stream = engine.stream(PROMPT, logprobs=256, num_draft_tokens=4, max_new_tokens=20)
    events = [next(stream), next(stream)]
    stream.cancel()
    events += list(stream)
    assert stream.finish_reason == "cancelled"
    assert all(len(event.top_logprobs) == 256 for event in events)


def test_a_stop_keeps_the_reports_of_what_is_kept(engine: Engine) -> None:
    request = Request(engine, num_draft_tokens=4)
    assert [request.stop(count) for count in (0, 1, 2**64 - 1, 2**63)] == [lib.PF_INVALID_ARGUMENT] * 4
    num_tokens = request.step()
    while num_tokens < 2:
        num_tokens = request.step()
    assert request.stop(num_tokens + 1) == request.stop(2**63) == request.stop(0) == lib.PF_INVALID_ARGUMENT
    assert request.num_reported() == num_tokens
    assert request.stop(1) == lib.PF_OK
    assert request.num_reported() == 1
    assert request.stop(1) == lib.PF_INVALID_ARGUMENT
    assert request.step() == 0
    assert request.handle.finish[0] == lib.PF_FINISH_STOP


def test_a_step_without_room_reports_nothing_and_can_be_repeated(engine: Engine) -> None:
    request = Request(engine, num_draft_tokens=4)
    request.step()
    assert request.step(capacity=4) == lib.PF_INVALID_ARGUMENT
    assert request.num_reported() == 0
    assert request.stop(1) == lib.PF_INVALID_ARGUMENT
    assert request.step() == request.num_reported() > 0


@pytest.mark.parametrize("together", [False, True])
def test_a_failed_step_reports_nothing(engine: Engine, *, together: bool) -> None:
    num_calls = 0

    def fill(path: Any, words: Any) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls > 8:
            raise KeyError(tuple(path))
        words[:] = 0xFFFFFFFF

    request = Request(engine, mask=Mask(fill, 258), num_draft_tokens=4)

    def run_until_it_fails() -> None:
        for _ in range(10):
            if not together:
                calls.request_step(request.handle)
            elif isinstance(outcome := calls.step_together([request.handle])[0], Exception):
                raise outcome

    with pytest.raises(CallbackFailedError):
        run_until_it_fails()
    assert request.num_reported() == 0
    assert [rows.shape for rows in calls.request_top_logprobs(request.handle)] == [(0, NUM_TOP)] * 2
    with pytest.raises(InvalidArgumentError):
        calls.request_stop(request.handle, 1)


@pytest.mark.parametrize("num_calls_before", range(2, 9))
def test_a_mask_that_fails_while_requests_draft_together_ends_its_own(engine: Engine, num_calls_before: int) -> None:
    num_calls = 0

    def fill(path: Any, words: Any) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls > num_calls_before:
            raise KeyError(tuple(path))
        words[:] = 0xFFFFFFFF

    failing = Request(engine, mask=Mask(fill, 258), num_draft_tokens=4)
    others = [Request(engine, num_draft_tokens=4) for _ in range(2)]
    handles = [others[0].handle, failing.handle, others[1].handle]
    found: list[Any] = []
    while not found or not isinstance(found[1], Exception):
        found = calls.step_together(handles)
    assert isinstance(found[1], CallbackFailedError)
    assert isinstance(found[1].__cause__, KeyError)
    assert [len(found[index][0]) > 0 for index in (0, 2)] == [True, True]
    assert not any(isinstance(outcome, Exception) for outcome in calls.step_together([each.handle for each in others]))
    for handle in handles:  # which the exception's traceback keeps alive
        handle.close()


def test_a_request_that_waits_for_its_turn_reports_nothing(engine: Engine) -> None:
    first, second = Request(engine), Request(engine)
    first.step()
    first.step()
    outcomes = calls.step_together([first.handle, second.handle, Request(engine).handle])
    reported = [first.num_reported(), second.num_reported()]
    assert reported == [len(outcome[0]) for outcome in outcomes[:2] if not isinstance(outcome, Exception)]


@pytest.mark.parametrize("capacity", [CAPACITY, 12, 9])
def test_an_echo_reports_every_row_however_many_requests_share_passes(engine: Engine, capacity: int) -> None:
    """With num_sequences 4 a step of an echo has more rows than a round of decoding."""
    request = Request(engine, echo=True, max_new_tokens=2, num_draft_tokens=0)
    most = 0
    while not request.handle.finish[0]:
        count = request.step(capacity)
        most = max(most, count)
        assert request.num_reported() == count > 0
    assert most == min(capacity, 8 + 4)


def test_what_an_echo_reports_is_right(engine: Engine) -> None:
    result = engine.generate(PROMPT, echo=True, logprobs=5, max_new_tokens=1, num_draft_tokens=0)
    logits = engine.logits(PROMPT).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for row, likeliest in zip(logprobs, result.top_logprobs[1:], strict=True):
        expected = np.sort(row[:258])[::-1][:5]
        np.testing.assert_allclose([entry.logprob for entry in likeliest], expected, atol=1e-4)
