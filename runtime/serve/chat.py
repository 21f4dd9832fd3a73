"""Answers of /v1/chat/completions, whole and in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pilotfish.runtime import reasoning
from pilotfish.runtime.reasoning import Reasoning, ReasoningReader
from pilotfish.runtime.tool_calls import ToolCall, ToolCallReader

from .answers import finish_reason, head, origins, shown_logprob, spelling, usage
from .chat_request import ChatRequest, read_chat
from .kind import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from pilotfish.runtime import Engine, TokenStream
    from pilotfish.runtime.results import Event, Result

    from .generations import Generations
    from .models import Model


Piece: TypeAlias = Reasoning | str | ToolCall
"""Of an answer."""
_MOST_MARK_TOKENS = 8  # that <think> and the blanks behind it may be


def prepare_chat(model: Model, request: ChatRequest) -> list[Callable[[], TokenStream]]:
    """Render, tokenize and check a request: what opens each of its choices. Takes a while: not for the event loop.

    Raises:
        PilotfishError: the conversation or an option cannot be used.
        ApiError: the bundle cannot serve it.
    """
    request.form(model.tool_call_form)
    ids = model.engine.encode_chat(
        [_known(message, model) for message in request.messages],
        tools=request.tools.given if request.tools else None,
        template_variables=request.template_variables or None,
    )
    if request.has_logprobs:
        model.engine.token_bytes(0)  # whether its tokens have any
    request.has_begun_reasoning = _ends_in_thoughts(ids, model)
    return openings(model.engine, ids, request.asked.options, request.asked.num_choices)


def openings(
    engine: Engine, prompt: str | Sequence[int], options: dict[str, Any], num_choices: int
) -> list[Callable[[], TokenStream]]:
    """What opens each choice: with a seed, the next one has the next seed."""
    seed = options["seed"]
    return [
        engine.prepare(prompt, **options | {"seed": None if seed is None else (seed + index) % 2**64})
        for index in range(num_choices)
    ]


def _known(message: Any, model: Model) -> Any:
    """A message as the template knows it: developers instruct as systems do, and few templates read old thoughts."""
    if not isinstance(message, dict):
        return message
    if message.get("role") == "developer" and not model.has_developers:
        message = message | {"role": "system"}
    if "reasoning_content" in message and not model.reads_reasoning:
        message = {key: value for key, value in message.items() if key != "reasoning_content"}
    return message


def _ends_in_thoughts(ids: Sequence[int], model: Model) -> bool:
    """Whether the prompt ends with the mark that begins thoughts, as text or as a special token."""
    if not model.reasons:
        return False
    end = list(ids[-_MOST_MARK_TOKENS:])
    mark = model.engine.special_ids.get(reasoning.BEGIN)
    if mark is None:
        return model.engine.decode(end).rstrip().endswith(reasoning.BEGIN)
    return mark in end and not model.engine.decode(end[end.index(mark) + 1 :]).strip()


class ChatAnswer:
    """One choice as it grows: what its events are for the client."""

    def __init__(self, index: int, model: Model, request: ChatRequest) -> None:
        """Empty."""
        self._index = index
        self._request = request
        self._engine = model.engine
        form = request.form(model.tool_call_form)
        self._reader = ToolCallReader(form, request.tools.names) if form and request.tools else None
        splits = model.reasons and request.splits_reasoning
        self._reasoning = ReasoningReader(has_begun=request.has_begun_reasoning) if splits else None
        marks = [*([form.begin] if form else []), *([reasoning.BEGIN, reasoning.END] if splits else [])]
        self._marks = {model.engine.special_ids[mark]: mark for mark in marks if mark in model.engine.special_ids}
        self._num_calls = 0
        self._num_told_calls = 0
        self._has_begun = False
        self._untold: list[Event] = []  # whose logprobs no chunk had yet

    def deltas(self, events: Sequence[Event], result: Result | None) -> list[dict[str, Any]]:
        """The choices of the chunks that follow from a round."""
        pieces = self._pieces(events, result)
        self._untold += events
        told = [self._choice(self._delta(piece)) for piece in pieces]
        if told and (self._request.has_logprobs or self._request.asked.shows_origins):
            told[0] |= self._about_tokens(self._untold)
            self._untold = []
        if not self._has_begun and events:
            self._has_begun = True
            told.insert(0, self._choice({"role": "assistant", "content": ""}))
        if result is not None:
            about = self._about_tokens(self._untold) if self._untold else {}
            told.append(self._choice({}) | about | {"finish_reason": self._reason(result)})
        return told

    def whole(self, result: Result, events: Sequence[Event]) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""
        pieces = self._pieces(events, result)
        content = "".join(piece for piece in pieces if isinstance(piece, str))
        calls = [_call(piece) for piece in pieces if isinstance(piece, ToolCall)]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content if content or not calls else None,
            "refusal": None,
        }
        if self._reasoning is not None:
            thoughts = "".join(piece.text for piece in pieces if isinstance(piece, Reasoning))
            message["reasoning_content"] = thoughts or None
        if calls:
            message["tool_calls"] = calls
        choice = {"index": self._index, "message": message, "logprobs": None, "finish_reason": self._reason(result)}
        return choice | self._about_tokens(events)

    def _pieces(self, events: Sequence[Event], result: Result | None) -> list[Piece]:
        """Thoughts, texts and calls of some events."""
        if self._reader is None and self._reasoning is None:
            text = "".join(event.text for event in events)
            return [text] if text else []
        pieces: list[Piece] = []
        for event in events:  # text leaves special tokens out, and a mark may be one
            text = self._marks.get(event.token_id, "") + event.text
            for piece in [text] if self._reasoning is None else self._reasoning.push(text):
                pieces += self._with_calls(piece)
        if result is not None:
            for piece in [] if self._reasoning is None else self._reasoning.finish():
                pieces += self._with_calls(piece)
            pieces += [] if self._reader is None else self._reader.finish()
        return [piece for piece in pieces if not isinstance(piece, ToolCall) or self._is_wanted()]

    def _with_calls(self, piece: Reasoning | str) -> Sequence[Piece]:
        if isinstance(piece, Reasoning) or self._reader is None:
            return [piece]
        return self._reader.push(piece)

    def _is_wanted(self) -> bool:
        self._num_calls += 1
        return self._request.tools is None or not self._request.tools.is_single or self._num_calls == 1

    def _reason(self, result: Result) -> str:
        reason = finish_reason(result)
        return "tool_calls" if self._num_calls and reason == "stop" else reason

    def _delta(self, piece: Piece) -> dict[str, Any]:
        if isinstance(piece, str):
            return {"content": piece}
        if isinstance(piece, Reasoning):
            return {"reasoning_content": piece.text}
        number = self._num_told_calls
        self._num_told_calls += 1
        return {"tool_calls": [{"index": number, **_call(piece)}]}

    def _choice(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _about_tokens(self, events: Sequence[Event]) -> dict[str, Any]:
        about: dict[str, Any] = {}
        if self._request.has_logprobs:
            about["logprobs"] = {"content": [_logprob(self._engine, event) for event in events], "refusal": None}
        if self._request.asked.shows_origins:
            about["token_origins"] = origins(events)
        return about


def whole_chat(model: Model, request: ChatRequest, ended: Sequence[tuple[Result, Sequence[Event]]]) -> dict[str, Any]:
    """The answer to a request that is not streamed, of each choice's result and events."""
    choices = [ChatAnswer(index, model, request).whole(*each) for index, each in enumerate(ended)]
    results = [result for result, _ in ended]
    return {
        **head("chat.completion", "chatcmpl", model.name),
        "choices": choices,
        "usage": usage(results, request.asked.num_choices),
    }


async def chat_chunks(
    model: Model, request: ChatRequest, generations: Generations
) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of an answer that is streamed."""
    shared = head("chat.completion.chunk", "chatcmpl", model.name)
    answers = [ChatAnswer(index, model, request) for index in range(request.asked.num_choices)]
    results: dict[int, Result] = {}
    without_usage = {"usage": None} if request.asked.includes_usage else {}
    async for index, events, result in generations.updates():
        if result is not None:
            results[index] = result
        for choice in answers[index].deltas(events, result):
            yield {**shared, "choices": [choice], **without_usage}
    if request.asked.includes_usage:
        yield {
            **shared,
            "choices": [],
            "usage": usage([results[index] for index in sorted(results)], request.asked.num_choices),
        }


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _logprob(engine: Engine, event: Event) -> dict[str, Any]:
    top = [_named(engine, each.token_id, each.logprob) for each in event.top_logprobs]
    return {**_named(engine, event.token_id, event.logprob), "top_logprobs": top}


def _named(engine: Engine, token_id: int, logprob: float) -> dict[str, Any]:
    text, spelled = spelling(engine, token_id)
    return {"token": text, "bytes": spelled, "logprob": shown_logprob(logprob)}


CHAT = Kind(read_chat, prepare_chat, whole_chat, chat_chunks)
"""/v1/chat/completions."""
