"""Events over rounds of any size: the deltas are the text, byte for byte, and no character is ever split."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny_bundles import byte_tokenizer
from tokenizer_entries import manifest_of

from pilotfish.bindings import Finish, Origin, RequestOptions, RequestStats, Token
from pilotfish.runtime import TokenStream, token_stream
from pilotfish.runtime import rounds as rounds_module
from pilotfish.runtime.rounds import Rounds
from pilotfish.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime import Event

EMOJI = "\U0001f469\u200d\U0001f680\u2764\ufe0f\U0001f1eb\U0001f1f7"  # joined, with a variation selector, a flag
TEXTS = st.text(st.sampled_from("aé漢語" + EMOJI), max_size=30) | st.text(max_size=20)
ROUNDS = st.lists(st.integers(1, 9), min_size=1, max_size=60)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One token a byte."""
    folder = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return Tokenizer(manifest_of(folder, 258, 256, (257,), add_bos=False))


class NativeRounds:
    """Stands for the native calls: gives out the ids in rounds of the given sizes."""

    def __init__(self, ids: Sequence[int], sizes: Sequence[int], finish: Finish) -> None:
        self._left = deque(ids)
        self._sizes = deque(sizes)
        self._finish = finish
        self.num_rounds = 0
        self.is_cancelled = False
        self.num_emitted = 0  # as the engine counts

    def request_open(self, *_: object) -> SimpleNamespace:
        request = SimpleNamespace(closed=False, is_foreign=False)
        request.close = lambda: setattr(request, "closed", True)
        return request

    def request_step(self, _: object) -> tuple[list[Token], Finish]:
        if self.is_cancelled:
            return [], Finish.CANCELLED
        size = self._sizes[0]
        self._sizes.rotate(-1)
        tokens = [self._left.popleft() for _ in range(min(size, len(self._left)))]
        self.num_rounds += 1
        self.num_last = len(tokens)
        self.num_emitted += len(tokens)
        return [
            Token(token_id, Origin.PLAIN, -1.0, self.num_rounds) for token_id in tokens
        ], Finish.NONE if self._left else self._finish

    def request_stop(self, _: object, num_tokens: int) -> None:
        self.num_emitted += num_tokens - self.num_last

    def request_stats(self, _: object) -> RequestStats:
        return RequestStats(**dict.fromkeys(RequestStats.__dataclass_fields__, 0))

    def request_cancel(self, _: object) -> None:
        self.is_cancelled = True


def replace_calls(patch: pytest.MonkeyPatch, native: NativeRounds) -> None:
    for module in (token_stream, rounds_module):
        patch.setattr(module, "calls", native)


def open_stream(tokenizer: Tokenizer, rounds: NativeRounds, stops: Sequence[str] = ()) -> TokenStream:
    with pytest.MonkeyPatch.context() as patch:
        replace_calls(patch, rounds)
        return TokenStream(
            None,  # type: ignore[arg-type]
            Rounds(1),
            tokenizer,
            ids=np.zeros(1, np.int32),
            request=RequestOptions(numbers={}),
            stop_strings=stops,
        )


def run(tokenizer: Tokenizer, rounds: NativeRounds, stops: Sequence[str] = ()) -> list[Event]:
    with pytest.MonkeyPatch.context() as patch:
        replace_calls(patch, rounds)
        return list(open_stream(tokenizer, rounds, stops))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS.filter(bool), sizes=ROUNDS)
@example(text=EMOJI, sizes=[1])
@example(text="漢" * 9, sizes=[2, 5])
def test_the_deltas_are_the_text_byte_for_byte(tokenizer: Tokenizer, text: str, sizes: list[int]) -> None:
    ids = tokenizer.encode_rendered(text)
    events = run(tokenizer, NativeRounds(ids, sizes, Finish.EOS))
    assert b"".join(event.text.encode() for event in events) == text.encode()
    assert [event.token_id for event in events] == ids
    assert [event.finish_reason for event in events] == [None] * (len(ids) - 1) + ["eos"]
    # A delta appears with the token that completes it: as many bytes as tokens so far, or fewer.
    shown = 0
    for index, event in enumerate(events, 1):
        shown += len(event.text.encode())
        assert shown <= index


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS.filter(bool), sizes=ROUNDS, stop=st.text(st.sampled_from("aé漢" + EMOJI), min_size=1, max_size=3))
def test_a_stop_string_cuts_wherever_rounds_end(tokenizer: Tokenizer, text: str, sizes: list[int], stop: str) -> None:
    ids = tokenizer.encode_rendered(text)
    rounds = NativeRounds(ids, sizes, Finish.LENGTH)
    events = run(tokenizer, rounds, [stop])
    assert "".join(event.text for event in events) == text.split(stop, maxsplit=1)[0]
    assert events[-1].finish_reason == ("stop" if stop in text else "length")
    # Ids, logprobs and caches end where the text does: with the token that completes the stop string.
    num_bytes = len(text[: text.index(stop) + len(stop)].encode()) if stop in text else len(ids)
    assert [event.token_id for event in events] == ids[:num_bytes]
    assert rounds.num_emitted == num_bytes


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(0, 257), min_size=1, max_size=60), sizes=ROUNDS)
def test_any_bytes_give_the_same_text_whatever_the_rounds(
    tokenizer: Tokenizer, ids: list[int], sizes: list[int]
) -> None:
    """Also bytes that spell nothing, and special tokens between them."""
    texts = ["".join(event.text for event in run(tokenizer, NativeRounds(ids, by, Finish.EOS))) for by in (sizes, [1])]
    assert texts[0] == texts[1] == tokenizer.decode(ids)


def test_every_event_of_a_round_is_out_before_the_next_one_begins(tokenizer: Tokenizer) -> None:
    """Tokens that belong together, such as a tag and what follows it, are never lost or merged in one delta."""
    rounds = NativeRounds(tokenizer.encode_rendered("</think>{}done"), [10, 4], Finish.EOS)
    events = run(tokenizer, rounds)
    assert [event.text for event in events] == list("</think>{}done")
    assert [event.seconds for event in events] == [1] * 10 + [2] * 4


@pytest.mark.parametrize("num_before", [1, 4, 5, 9])
def test_after_cancel_no_round_is_run(tokenizer: Tokenizer, num_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = NativeRounds(range(65, 90), [4], Finish.LENGTH)
    replace_calls(monkeypatch, rounds)
    stream = open_stream(tokenizer, rounds)
    events = [next(stream) for _ in range(num_before)]
    num_rounds = rounds.num_rounds
    canceller = threading.Thread(target=stream.cancel)
    canceller.start()
    canceller.join()
    events += stream
    assert rounds.num_rounds == num_rounds
    assert [event.token_id for event in events] == list(range(65, 65 + 4 * num_rounds))
    assert stream.finish_reason == "cancelled"
