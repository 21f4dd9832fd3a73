"""Rounds of an engine's generations: those that several threads wait for at the same moment share passes."""

from __future__ import annotations

import gc
import math
import threading
import time
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pilotfish.bindings import EngineBusyError, Finish, InvalidArgumentError, PilotfishError, calls
from pilotfish.bindings.handle import check_outside_of_steps

from .engine_lock import EngineLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotfish.bindings import RequestHandle, Token

Value = TypeVar("Value")

# Who had a part in the last pass is waited for: a thread hands its tokens on and comes back. So long at most, or so
# much of what that pass took, since it may have other things to do.
_LEAST_PATIENCE_SECONDS = 0.0005
_PATIENCE = 0.1
_SECONDS_BETWEEN_COLLECTIONS = 1.0

Outcome: TypeAlias = "tuple[list[Token], Finish] | PilotfishError"
"""Of a round: its tokens, and why the generation ended if it did; or why it failed."""


class _Step:
    """A round that a thread waits for."""

    def __init__(self, request: RequestHandle, owner: int) -> None:
        self.request = request
        self.owner = owner
        self.outcome: Outcome | None = None


class Rounds:
    """Steps generations, those together that wait for the engine at the same time (in-flight batching).

    The first thread that finds the engine free runs a round for all that wait, and they go their ways with what it
    gave them. The tokens of a generation do not depend on its company.
    """

    def __init__(self, most: int) -> None:
        """``most`` generations at a time."""
        self.lock = EngineLock()
        """Held during every call of the engine."""
        self.most = most
        self._changed = threading.Condition()
        self._waiting: list[_Step] = []
        self._is_running = False
        self._leader: int | None = None  # the thread that runs a round
        self._expected: set[int] = set()  # owners of the last steps, as long as they have not come back
        self._patience = _LEAST_PATIENCE_SECONDS
        self._collected = -math.inf

    @property
    def is_busy_here(self) -> bool:
        """Whether others wait for this thread: it runs a round or calls the engine, and a signal handler asks."""
        return self._leader == threading.get_ident() or self.lock.is_held_here

    def reserve(self, call: Callable[[], Value]) -> Value:
        """What a call gives that reserves cache blocks, also those of streams that were dropped in circles.

        Only the collector opens a circle, so that it is had to look before an engine is said to be busy: once a second
        at most, since that takes some tens of milliseconds.
        """
        try:
            with self.lock:
                return call()
        except EngineBusyError:
            if time.monotonic() - self._collected < _SECONDS_BETWEEN_COLLECTIONS:
                raise
        gc.collect()
        self._collected = time.monotonic()
        with self.lock:
            return call()

    def step(self, request: RequestHandle, owner: int) -> tuple[list[Token], Finish]:
        """Run a round of a generation. An ``owner`` waits for one at a time: a thread, or an asynchronous stream.

        Raises:
            PilotfishError: the generation failed.
            InvalidArgumentError: this thread is running another one's, as when a signal handler asks for it.
        """
        if self._leader == threading.get_ident():
            raise InvalidArgumentError("this thread is in the midst of a round, as in a signal handler: ask after it")
        check_outside_of_steps()
        step = _Step(request, owner)
        with self._changed:
            self._expected.discard(owner)
            self._waiting.append(step)
            self._changed.notify_all()
        try:
            while step.outcome is None:
                with self._changed:
                    if self._is_running:
                        self._changed.wait()
                        continue
                    self._is_running = True
                self._lead()
        except BaseException:
            self._withdraw(step)
            raise
        if isinstance(step.outcome, PilotfishError):
            raise step.outcome
        return step.outcome

    def _lead(self) -> None:
        """Run one round of all that wait."""
        steps: list[_Step] = []
        try:
            self._leader = threading.get_ident()
            self._gather(steps)
            started = time.monotonic()
            with self.lock:
                running = self._without_closed(steps)
                outcomes = self._run([step.request for step in running])
            for step, outcome in zip(running, outcomes, strict=True):
                step.outcome = outcome
            self._patience = max(_LEAST_PATIENCE_SECONDS, _PATIENCE * (time.monotonic() - started))
        except BaseException as error:
            for step in steps:  # their threads must not wait for what will not come
                if step.outcome is None:
                    step.outcome = error if isinstance(error, PilotfishError) else _lost(error)
            raise
        finally:
            with self._changed:
                self._expected = {step.owner for step in steps if _goes_on(step)}
                self._leader = None
                self._is_running = False
                self._changed.notify_all()

    @staticmethod
    def _without_closed(steps: list[_Step]) -> list[_Step]:
        """Those that go on: a signal handler may have closed one while its thread waited for a round."""
        for step in steps:
            if step.request.closed:
                step.outcome = ([], Finish.CANCELLED)
        return [step for step in steps if step.outcome is None]

    def _run(self, requests: list[RequestHandle]) -> list[Outcome]:
        if self.most > 1:
            return calls.step_together(requests)
        try:
            return [calls.request_step(request) for request in requests]
        except PilotfishError as error:
            return [error]

    def _gather(self, steps: list[_Step]) -> None:
        deadline = time.monotonic() + self._patience
        with self._changed:
            while self._expected and len(self._waiting) < self.most:
                if not self._changed.wait(max(deadline - time.monotonic(), 0)):
                    break
            steps += self._waiting[: self.most]
            del self._waiting[: self.most]

    def _withdraw(self, step: _Step) -> None:
        """Before its thread goes: no round may run for it any more."""
        with self._changed:
            if step in self._waiting:
                self._waiting.remove(step)
                return
            while step.outcome is None and self._is_running:
                self._changed.wait()


def _lost(error: BaseException) -> PilotfishError:
    return PilotfishError(f"the round is lost: {type(error).__name__} ended the thread that ran it for this one too")


def _goes_on(step: _Step) -> bool:
    return isinstance(step.outcome, tuple) and step.outcome[1] is Finish.NONE
