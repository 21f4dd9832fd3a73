"""Answers as HTTP has them: JSON, and chunks as server-sent events; a client that goes away ends its generations."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from pilotfish.bindings import PilotfishError

from .errors import INTERNAL, api_error, client_gone

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from .generations import Generations

logger = logging.getLogger("uvicorn.error")


class JsonResponse(Response):
    """An object in ASCII, which may have half of a surrogate pair that a client sent."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return _json(content)


def error_response(error: Exception) -> Response:
    """The protocol's error object; what nobody foresaw goes to the log."""
    answer = api_error(error)
    if answer.status == INTERNAL and isinstance(error, PilotfishError):  # starlette logs all others
        logger.error("a request failed", exc_info=error)
    return JsonResponse(answer.content(), answer.status, headers=answer.headers)


class EventStream(Response):
    """Chunks as events, and [DONE] behind them. What fails before the first one is raised, and later an event."""

    media_type = "text/event-stream"

    def __init__(
        self, chunks: AsyncGenerator[dict[str, Any], None], generations: Generations, headers: Mapping[str, str]
    ) -> None:
        """``chunks`` are those of ``generations``."""
        super().__init__(headers={**headers, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["Content-Length"]
        self._chunks = chunks
        self._generations = generations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all."""
        del scope
        async with cancelled_with_client(receive, self._generations):
            first = await anext(self._chunks, None)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in self._events(first):
                await self._send(send, event, more=True)
            await self._send(send, b"", more=False)

    async def _events(self, first: dict[str, Any] | None) -> AsyncIterator[bytes]:
        try:
            if first is not None:
                yield _event(first)
                async for chunk in self._chunks:
                    yield _event(chunk)
            yield b"data: [DONE]\n\n"
        except Exception as error:
            answer = api_error(error)
            if answer is not error:
                logger.exception("a stream failed")
            yield _event(answer.content())

    async def _send(self, send: Send, body: bytes, *, more: bool) -> None:
        try:
            await send({"type": "http.response.body", "body": body, "more_body": more})
        except OSError:  # how some servers say that the client is gone
            self._generations.cancel(client_gone())
        await asyncio.sleep(0)  # sending need not wait: without this, many chunks would keep all others from their turn


class cancelled_with_client(contextlib.AbstractAsyncContextManager["None"]):  # noqa: N801 - used as a function is
    """In the block, a client that goes away cancels its generations, as leaving the block does."""

    def __init__(self, receive: Callable[[], Any], generations: Generations) -> None:
        """``receive`` gives the connection's messages, after the request's body."""
        self._receive = receive
        self._generations = generations

    async def __aenter__(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def __aexit__(self, *_: object) -> None:
        self._watcher.cancel()
        self._generations.close()

    async def _watch(self) -> None:
        message: Message = await self._receive()
        while message["type"] != "http.disconnect":
            message = await self._receive()
        self._generations.cancel(client_gone())


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + _json(content) + b"\n\n"


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode("ascii")
