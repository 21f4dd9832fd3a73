"""The cache keeps its invariants at every step, gives every block back, and the process does not grow."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotfish.bindings import EngineBusyError
from pilotfish.runtime.memory import resident_memory_bytes

if TYPE_CHECKING:
    from pilotfish import Engine
    from pilotfish.runtime import TokenStream

NUM_SEQUENCES = 4  # as the engine fixture has
REQUESTS = st.fixed_dictionaries(
    {
        "prompt": st.lists(st.integers(0, 255), min_size=1, max_size=80),
        "max_new_tokens": st.integers(1, 80),
        "num_draft_tokens": st.none() | st.integers(0, 8),
        "temperature": st.sampled_from([0.0, 1.0]),
        "seed": st.integers(0, 100),
    }
)
ACTIONS = st.one_of(
    st.tuples(st.just("open"), REQUESTS),
    st.tuples(st.sampled_from(["step", "step", "step", "cancel", "close", "drop"]), st.integers(0, NUM_SEQUENCES - 1)),
)


def num_used(engine: Engine) -> int:
    info = engine.info
    return info.num_blocks - info.num_free_blocks - info.num_retained_blocks


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=40))
def test_invariants_hold_after_every_action(engine: Engine, actions: list[tuple[str, object]]) -> None:
    streams: list[TokenStream] = []
    for action, argument in actions:
        if action == "open" and isinstance(argument, dict):
            if len(streams) < NUM_SEQUENCES:
                streams.append(engine.stream(**argument))
        elif streams and isinstance(argument, int):
            act(streams, action, argument % len(streams))
        engine.check()
        assert streams or num_used(engine) == 0
    for stream in streams:
        stream.close()
        engine.check()
    assert num_used(engine) == 0


def act(streams: list[TokenStream], action: str, index: int) -> None:
    if action == "step":
        next(streams[index], None)
    elif action == "cancel":
        streams[index].cancel()
    elif action == "close":
        streams.pop(index).close()
    else:
        streams.pop(index)


def test_a_dropped_stream_gives_its_blocks_back(engine: Engine) -> None:
    stream = engine.stream("drop", max_new_tokens=50)
    next(stream)
    assert num_used(engine) > 0
    del stream
    assert num_used(engine) == 0


def test_more_requests_than_sequences_are_refused_and_leave_the_others_alone(engine: Engine) -> None:
    expected = engine.generate("full", max_new_tokens=250, ignore_eos=True).token_ids
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(engine.stream("full", max_new_tokens=250, ignore_eos=True))
            for _ in range(NUM_SEQUENCES)
        ]
        with pytest.raises(EngineBusyError, match="larger num_sequences"):
            engine.stream("full", max_new_tokens=250)
        assert [stream.result().token_ids for stream in streams] == [expected] * NUM_SEQUENCES
    assert num_used(engine) == 0


def test_two_hundred_requests_leave_no_memory_behind(engine: Engine) -> None:
    def run(index: int) -> None:
        prompt = [(index * 31 + position) % 256 for position in range(1 + index % 90)]
        stream = engine.stream(
            prompt, max_new_tokens=1 + index % 60, num_draft_tokens=index % 9, temperature=(index % 3) / 2, seed=index
        )
        with stream:
            for count, _ in enumerate(stream):
                if index % 5 == 0 and count == 7:
                    stream.cancel()

    for index in range(60):
        run(index)
    before = resident_memory_bytes()
    for index in range(200):
        run(index)
    assert resident_memory_bytes() - before < 2 * 2**20
    assert num_used(engine) == 0
    engine.check()
