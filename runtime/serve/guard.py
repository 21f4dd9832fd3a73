"""Who may ask what: the key, the pages of browsers, and the counting of answers. Pure ASGI, around the application."""

from __future__ import annotations

import hmac
import ipaddress
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from .errors import ApiError
from .responses import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .metrics import Requests

_OPEN_PATHS = ("/", "/health")  # the page has no secrets, and whoever watches the server needs no key
_LOCAL_NAME = "localhost"


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask."""

    api_key: str | None
    is_local: bool
    """Whether the server listens to this machine alone, so that it is only ever called by a loopback name."""


class Guard:
    """Refuses, and counts what it lets through."""

    def __init__(self, app: ASGIApp, access: Access, requests: Requests, paths: frozenset[str]) -> None:
        """``paths`` are those that are counted by name; all others are "other"."""
        self._app = app
        self._access = access
        self._requests = requests
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            error = self._refusal(scope["path"], Headers(scope=scope))
            await (self._app if error is None else error_response(error))(scope, receive, counted)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._requests.add(path, status, time.monotonic() - started)

    def _refusal(self, path: str, headers: Headers) -> ApiError | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._access.is_local and not _is_loopback(host):
            return ApiError(
                403, f"the server listens to this machine alone, and was called {host!r:.100}", code="foreign_host"
            )
        if origin is not None and urlsplit(origin).netloc != host:
            return ApiError(403, f"pages of {origin!r:.100} may not use this server", code="foreign_origin")
        if self._access.api_key is None or path in _OPEN_PATHS:
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(key.strip().encode(), self._access.api_key.encode()):
            return None
        return ApiError(
            401,
            "the key is missing or wrong: send the server's --api-key as Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _is_loopback(host: str) -> bool:
    """Whether a Host header names this machine by itself; a name of the network's may be made to lead here."""
    name = (urlsplit(f"//{host}").hostname or "") if _is_host(host) else ""
    if name == _LOCAL_NAME or name.endswith("." + _LOCAL_NAME):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_host(host: str) -> bool:
    try:
        urlsplit(f"//{host}")
    except ValueError:
        return False
    return True
