"""One running generation: rounds of the native engine -> one Event a token."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pilotfish.bindings import Finish, Origin, PilotfishError, calls

from .results import Event, Result, Round, Stats, TokenLogprob, round_from, stats_from
from .stop_strings import StopStrings
from .tokenizer import Detokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from pilotfish.bindings import EngineHandle, RequestOptions, Token

    from .rounds import Outcome, Rounds
    from .structured import Constraint
    from .tokenizer import Tokenizer


# Python shows it once a process.
_FAILED_DRAFTS = (
    "the draft of this bundle gave logits that are not numbers, and the target went on without it: export it again"
)


class TokenStream(Iterator[Event]):
    """An iterator of Events. Closing it, leaving its with block or dropping it frees its cache blocks.

    One thread at a time iterates; any may cancel.

    The texts' concatenation is the whole text. An event whose token leaves text undecided (half a character, what may
    begin a stop string) waits for the next round, so that the last event always carries the end of the text.
    """

    def __init__(
        self,
        engine: EngineHandle,
        rounds: Rounds,
        tokenizer: Tokenizer,
        *,
        ids: NDArray[np.int32],
        request: RequestOptions,
        stop_strings: Sequence[str],
        num_dropped_messages: int = 0,
        explain: bool = False,
        constraint: Constraint | None = None,
        keeps_thread: bool = True,
    ) -> None:
        """Reserve cache blocks for the prompt ``ids`` and its continuation.

        ``keeps_thread`` is false where any thread of a pool may run the next round.
        """
        self.num_dropped_messages = num_dropped_messages
        """Of the conversation this answers: the oldest ones, which did not fit the context."""
        self._rounds = rounds
        self._keeps_thread = keeps_thread
        # Re-entrant: a signal handler may close the stream in the midst of a round.
        self._lock = threading.RLock()
        self._seed = request.seed
        self._explain = explain
        self._constraint = constraint
        self._explained: list[Round] = []
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(stop_strings)
        self._ready: deque[Event] = deque()
        self._last: Event | None = None
        self._events: list[Event] = []
        self._num_new_tokens = 0
        self._min_new_tokens: int = request.min_new_tokens
        self._reports_likeliest = request.num_top_logprobs > 0
        self._cut_off = False  # by a stop string
        self._finish_reason: str | None = None
        self._final_stats: Stats | None = None
        self._is_to_close = False
        self.request = rounds.reserve(lambda: calls.request_open(engine, ids, request))

    def __next__(self) -> Event:
        """The next token's event; runs a round of the engine when none is ready."""
        while not self._ready:
            if self._finish_reason is not None or self.request.closed:
                raise StopIteration
            self._run_round()
        return self._ready.popleft()

    def next_ready(self) -> Event | None:
        """The next event if an earlier round gave it; None instead of running a round."""
        return self._ready.popleft() if self._ready else None

    def belongs_to(self, rounds: Rounds) -> bool:
        """Whether these are the rounds of its engine."""
        return self._rounds is rounds

    def result(self) -> Result:
        """Run to the end and return the whole generation, events that were already taken included."""
        for _ in self:
            pass
        return Result(
            text="".join(event.text for event in self._events),
            token_ids=tuple(event.token_id for event in self._events),
            finish_reason=self.finish_reason or "cancelled",
            stats=self.stats,
            logprobs=tuple(event.logprob for event in self._events),
            top_logprobs=tuple(event.top_logprobs for event in self._events) if self._reports_likeliest else (),
            num_dropped_messages=self.num_dropped_messages,
            rounds=tuple(self._explained),
        )

    @property
    def finish_reason(self) -> str | None:
        """Why the generation ended, as in Result; None while it runs."""
        return self._finish_reason

    @property
    def stats(self) -> Stats:
        """Counters so far, the final ones once the generation ended."""
        return self._final_stats or self._read_stats()

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds so far, where the option explain asked for them; they stand before their events come."""
        return self._explained

    def cancel(self) -> None:
        """End the generation within one round, with finish_reason "cancelled". Any thread."""
        calls.request_cancel(self.request)

    def close(self) -> None:
        """End the generation now and free its cache blocks: no further event comes. Closing twice is fine."""
        self._ready.clear()
        self._free()

    def _free(self) -> None:
        # A signal handler in the midst of a round may not wait for a thread that iterates, and waits for this round: it
        # closes the stream when it has let go.
        self._is_to_close = True
        if not self._lock.acquire(blocking=not self._rounds.is_busy_here):
            return
        try:
            with self._rounds.lock:
                if not self.request.closed:
                    self._final_stats = None if self.request.is_foreign else self._read_stats()
                    self._finish_reason = self._finish_reason or "cancelled"
                    self.request.close()
                    self._rounds.lock.when_freed()
                self._is_to_close = False
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "request"):
            self._rounds.lock.drop(self.request)

    def _run_round(self) -> None:
        with self._lock, self._closing_on_error():
            if self.request.closed:  # by another thread, while this one waited for its turn
                return
            # Whoever waits for the round, and for no other at the same time.
            owner = threading.get_ident() if self._keeps_thread else id(self)
            self._take(*self._rounds.step(self.request, owner))
        if self._is_to_close:
            self._free()

    def take(self, outcome: Outcome) -> None:
        """What a round gave that was run together with those of other streams: an error is raised."""
        with self._lock, self._closing_on_error():
            if isinstance(outcome, PilotfishError):
                raise outcome
            self._take(*outcome)

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # an interrupt too: a round may have run whose tokens are lost
            self.close()
            raise

    def _take(self, tokens: list[Token], finish: Finish) -> None:
        """Turn what a round gave into events, unless a signal handler closed the stream in the midst of it."""
        if self.request.closed:
            return
        new_ids = [token.id for token in tokens if token.origin is not Origin.PROMPT]
        if self._constraint is not None:
            self._constraint.commit(new_ids)
        if self._explain and tokens and self._num_new_tokens > 0:  # not the prefill's step, nor a cancelled one
            decision = calls.request_decision(self.request)
            self._explained.append(round_from(decision, num_tokens=len(tokens)))
        likeliest = self._likeliest(len(tokens))
        for index, token in enumerate(tokens):
            if self._push(token, likeliest[index]):
                calls.request_stop(self.request, index + 1)
                finish = Finish.STOP
                break
        if finish is not Finish.NONE:
            self._end(finish.name.lower())
        elif self._constraint is not None and new_ids and self._constraint.is_dead_end:
            calls.request_stop(self.request, len(tokens))
            self._end("dead_end")
        elif not (self._detokenizer.has_open_character or self._stops.held):
            self._release_last()

    def _likeliest(self, num_tokens: int) -> Sequence[tuple[TokenLogprob, ...]]:
        """The likeliest ids at each token of the last step."""
        if not self._reports_likeliest:
            return [()] * num_tokens
        ids, logprobs = calls.request_top_logprobs(self.request)
        rows = zip(ids.tolist(), logprobs.tolist(), strict=True)
        return [tuple(TokenLogprob(*pair) for pair in zip(*row, strict=True) if pair[0] >= 0) for row in rows]

    def _push(self, token: Token, likeliest: tuple[TokenLogprob, ...]) -> bool:
        """Make the token's event the last one; True if a stop string ends the text with it."""
        self._release_last()
        text = self._detokenizer.push(token.id)
        if token.origin is not Origin.PROMPT:
            self._num_new_tokens += 1
            text, self._cut_off = self._stops.push(text, may_stop=self._may_stop)
        origin = token.origin.name.lower()
        self._last = Event(text, token.id, token.logprob, origin, token.seconds, top_logprobs=likeliest)
        return self._cut_off

    def _end(self, reason: str) -> None:
        """Give the last event the text that is still held back, unless a stop string cut it off, and the reason."""
        if self._last is not None:
            text = self._last.text + ("" if self._cut_off else self._flush())
            self._last = dataclasses.replace(self._last, text=text, finish_reason=reason)
        self._release_last()
        self._finish_reason = reason
        self._free()
        if self.stats.num_failed_drafts > 0:
            warnings.warn(_FAILED_DRAFTS, RuntimeWarning, stacklevel=2)

    def _flush(self) -> str:
        text, cut_off = self._stops.push(self._detokenizer.flush(), may_stop=self._may_stop)
        return text if cut_off else text + self._stops.flush()

    @property
    def _may_stop(self) -> bool:
        return self._num_new_tokens >= self._min_new_tokens

    def _release_last(self) -> None:
        if self._last is not None:
            self._events.append(self._last)
            self._ready.append(self._last)
            self._last = None

    def _read_stats(self) -> Stats:
        return stats_from(calls.request_stats(self.request), self._seed)
