"""Handles are closed once, in any order, and refuse use afterwards."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.bindings import DraftSource, EngineOptions, Finish, RequestOptions, calls
from pilotfish.bindings.handle import RequestHandle, begin_step, end_step
from pilotfish.bindings.library import ffi
from pilotfish.runtime.ort import ort_library

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.bindings import EngineHandle

PROMPT = np.arange(40, 60, dtype=np.int32)
OPTIONS = RequestOptions(numbers={"max_new_tokens": 20, "num_draft_tokens": 3, "ignore_eos": True})


@pytest.fixture
def handle(tiny_bundle: Path) -> EngineHandle:
    return calls.engine_open(str(tiny_bundle), EngineOptions(ort_library=str(ort_library("cpu")), num_threads=1))


def run(request: RequestHandle) -> list[int]:
    ids: list[int] = []
    finish = Finish.NONE
    while finish is Finish.NONE:
        tokens, finish = calls.request_step(request)
        ids += [token.id for token in tokens]
    return ids


def test_closing_twice_is_fine_and_use_after_close_is_not(handle: EngineHandle) -> None:
    with handle:
        assert calls.engine_info(handle).has_draft
    handle.close()
    assert handle.closed
    with pytest.raises(ValueError, match="the engine is closed"):
        calls.engine_info(handle)


def test_a_request_outlives_its_engines_handle(handle: EngineHandle) -> None:
    with calls.request_open(handle, PROMPT, OPTIONS) as request:
        expected = run(request)
    request = calls.request_open(handle, PROMPT, OPTIONS)
    handle.close()
    assert run(request) == expected
    request.close()


def test_plain_decoding_takes_no_number_of_drafted_tokens(handle: EngineHandle) -> None:
    options = RequestOptions(numbers={**OPTIONS.numbers, "draft_source": DraftSource.PLAIN})
    with handle, pytest.raises(ValueError, match="num_draft_tokens is 3, but draft_source is 1, which drafts nothing"):
        calls.request_open(handle, PROMPT, options)


def test_steps_after_the_end_give_the_same_reason_and_no_token(handle: EngineHandle) -> None:
    with handle, calls.request_open(handle, PROMPT, OPTIONS) as request:
        assert len(run(request)) == OPTIONS.max_new_tokens
        assert calls.request_step(request) == ([], Finish.LENGTH)


def test_cancelling_after_close_does_nothing(handle: EngineHandle) -> None:
    with handle:
        request = calls.request_open(handle, PROMPT, OPTIONS)
        request.close()
        calls.request_cancel(request)
        with pytest.raises(ValueError, match="the generation is closed"):
            calls.request_step(request)


def test_the_collector_waits_for_no_step_of_another_thread() -> None:
    freed: list[str] = []
    begin_step()  # of this thread, as far as another one can see
    try:
        thread = threading.Thread(target=lambda: make_request(freed))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        assert freed == []
    finally:
        end_step()
    assert freed == ["closed"]


def make_request(freed: list[str]) -> None:
    """One that nobody keeps, nor closes."""
    pointer = ffi.new_handle(freed)
    RequestHandle(pointer, lambda _: freed.append("closed"), capacity=1, num_top_logprobs=0, mask=None)
