"""The application: what answers each path."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from pilotfish.bindings import PilotfishError

from .chat import CHAT
from .completions import COMPLETION
from .errors import ApiError, client_gone, invalid
from .generations import Generations
from .guard import Access, Guard
from .metrics import Requests, metrics_text
from .responses import EventStream, JsonResponse, cancelled_with_client, error_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .kind import Kind, RequestType
    from .models import Model, Models

_PAGE = Path(__file__).with_name("page.html")
# The page is one file that asks this server alone.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request."""

    most_body_bytes: int
    most_seconds: float
    """From its headers to its answer's last byte."""


def make_app(models: Models, access: Access, limits: Limits) -> Guard:
    """The application, which starts and closes the models' schedulers."""
    requests = Requests()
    routes = Paths(models, limits, requests).routes()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        for model in models.all:
            model.scheduler.start(loop)
        try:
            yield
        finally:
            for model in models.all:
                await asyncio.to_thread(model.scheduler.close)

    handlers: dict[Any, Any] = dict.fromkeys((Exception, PilotfishError, ApiError, HTTPException), _refuse)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    return Guard(app, access, requests, frozenset(route.path for route in routes))


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        message = f"{request.method} {request.url.path}: {error.detail}; docs/serve.md lists what there is"
        error = ApiError(error.status_code, message, code="unknown_path")
    return error_response(error)


class Paths:
    """What answers requests."""

    def __init__(self, models: Models, limits: Limits, requests: Requests) -> None:
        """``requests`` are counted elsewhere, and shown here."""
        self._models = models
        self._limits = limits
        self._requests = requests

    def routes(self) -> list[Route]:
        """One a path."""
        return [
            Route("/v1/chat/completions", self._answer_chat, methods=["POST"]),
            Route("/v1/completions", self._answer_completion, methods=["POST"]),
            Route("/v1/embeddings", self._refuse_embeddings, methods=["POST"]),
            Route("/v1/models", self._list_models),
            Route("/v1/models/{name:path}", self._show_model),
            Route("/health", self._show_health),
            Route("/metrics", self._show_metrics),
            Route("/", self._show_page),
        ]

    async def _answer_chat(self, request: Request) -> Response:
        return await self._answer(request, CHAT)

    async def _answer_completion(self, request: Request) -> Response:
        return await self._answer(request, COMPLETION)

    async def _answer(self, request: Request, kind: Kind[RequestType]) -> Response:
        end_at = asyncio.get_running_loop().time() + self._limits.most_seconds
        too_late = ApiError(
            504,
            f"the request took longer than the {self._limits.most_seconds:g} seconds that --time-limit allows",
            code="time_limit",
            headers={"X-Should-Retry": "false"},
        )
        try:
            body = await asyncio.wait_for(self._body(request), self._limits.most_seconds)
        except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
            raise too_late from None
        except ClientDisconnect:
            raise client_gone() from None
        asked = kind.read(body)
        model = self._models.named(asked.asked.model)
        model.scheduler.check_room(1)  # before the work of preparing
        openings = await asyncio.to_thread(kind.prepare, model, asked)
        generations = Generations(
            model.scheduler, openings, is_streamed=asked.asked.is_streamed, end_at=end_at, too_late=too_late
        )
        ignored = {"X-Pilotfish-Ignored": ", ".join(asked.asked.ignored)} if asked.asked.ignored else {}
        if asked.asked.is_streamed:
            return EventStream(kind.chunks(model, asked, generations), generations, ignored)
        async with cancelled_with_client(request.receive, generations):
            return JsonResponse(kind.whole(model, asked, await generations.ended()), headers=ignored)

    async def _body(self, request: Request) -> bytes:
        most = self._limits.most_body_bytes
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise ApiError(
                    413,
                    f"the request has more than {most} bytes, which --max-request allows",
                    code="request_too_large",
                    headers={"Connection": "close"},
                )
        return bytes(body)

    async def _refuse_embeddings(self, _: Request) -> Response:
        raise invalid("the models that are served generate text, and give no embeddings", code="unsupported")

    async def _list_models(self, _: Request) -> Response:
        return JsonResponse({"object": "list", "data": [_described(model) for model in self._models.all]})

    async def _show_model(self, request: Request) -> Response:
        return JsonResponse(_described(self._models.named(request.path_params["name"])))

    async def _show_health(self, _: Request) -> Response:
        return JsonResponse({"status": "ok"})

    async def _show_metrics(self, _: Request) -> Response:
        text = metrics_text(self._requests, self._models.all)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _show_page(self, _: Request) -> Response:
        page = await asyncio.to_thread(_PAGE.read_text, encoding="utf-8")
        return HTMLResponse(page, headers={"Content-Security-Policy": _PAGE_POLICY})


def _described(model: Model) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "pilotfish",
        "max_context": model.max_context,
    }
