"""Answers of /v1/completions, whole and in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answers import finish_reason, head, origins, shown_logprob, spelling, usage
from .chat import openings
from .completion_request import CompletionRequest, read_completion
from .kind import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from pilotfish.runtime import TokenStream
    from pilotfish.runtime.results import Event, Result

    from .generations import Generations
    from .models import Model


def prepare_completion(model: Model, request: CompletionRequest) -> list[Callable[[], TokenStream]]:
    """What opens each choice of each prompt. Takes a while: not for the event loop.

    Raises:
        PilotfishError: a prompt or an option cannot be used.
    """
    if request.has_logprobs:
        model.engine.token_bytes(0)  # whether its tokens have any
    asked = request.asked
    return [
        opening
        for prompt in request.prompts
        for opening in openings(model.engine, prompt, asked.options, asked.num_choices)
    ]


class CompletionAnswer:
    """One choice as it grows."""

    def __init__(self, index: int, model: Model, request: CompletionRequest) -> None:
        """Empty."""
        self._index = index
        self._request = request
        self._engine = model.engine
        self._num_characters = 0  # of the text before the events that were told

    def choice(self, events: Sequence[Event], result: Result | None) -> dict[str, Any]:
        """The choice of some events."""
        choice: dict[str, Any] = {
            "index": self._index,
            "text": "".join(event.text for event in events),
            "logprobs": self._logprobs(events) if self._request.has_logprobs else None,
            "finish_reason": None if result is None else finish_reason(result),
        }
        if self._request.asked.shows_origins:
            choice["token_origins"] = origins(events)
        return choice

    def _logprobs(self, events: Sequence[Event]) -> dict[str, Any]:
        offsets: list[int] = []
        for event in events:
            offsets.append(self._num_characters)
            self._num_characters += len(event.text)
        return {
            "tokens": [spelling(self._engine, event.token_id)[0] for event in events],
            "token_logprobs": [shown_logprob(event.logprob) for event in events],
            "top_logprobs": [self._likeliest(event) for event in events],
            "text_offset": offsets,
        }

    def _likeliest(self, event: Event) -> dict[str, float | None] | None:
        if not event.top_logprobs:
            return None
        return {spelling(self._engine, top.token_id)[0]: shown_logprob(top.logprob) for top in event.top_logprobs}


def whole_completion(
    model: Model, request: CompletionRequest, ended: Sequence[tuple[Result, Sequence[Event]]]
) -> dict[str, Any]:
    """The answer to a request that is not streamed, of each choice's result and events."""
    choices = [
        CompletionAnswer(index, model, request).choice(events, result) for index, (result, events) in enumerate(ended)
    ]
    return {
        **head("text_completion", "cmpl", model.name),
        "choices": choices,
        "usage": usage([result for result, _ in ended], request.asked.num_choices),
    }


async def completion_chunks(
    model: Model, request: CompletionRequest, generations: Generations
) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of an answer that is streamed."""
    shared = head("text_completion", "cmpl", model.name)
    num_choices = request.asked.num_choices
    answers = [CompletionAnswer(index, model, request) for index in range(len(request.prompts) * num_choices)]
    results: dict[int, Result] = {}
    without_usage = {"usage": None} if request.asked.includes_usage else {}
    async for index, events, result in generations.updates():
        if result is not None:
            results[index] = result
        yield {**shared, "choices": [answers[index].choice(events, result)], **without_usage}
    if request.asked.includes_usage:
        ordered = [results[index] for index in sorted(results)]
        yield {**shared, "choices": [], "usage": usage(ordered, num_choices)}


COMPLETION = Kind(read_completion, prepare_completion, whole_completion, completion_chunks)
"""/v1/completions."""
