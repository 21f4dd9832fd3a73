"""What a client is told that went wrong: a status, and the protocol's error object with one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotfish.bindings import (
    ContextFullError,
    EngineBusyError,
    InvalidArgumentError,
    NoTokenLeftError,
    OutOfMemoryError,
    PilotfishError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

BAD_REQUEST = 400
CLIENT_GONE = 499  # nobody reads it; it is counted
INTERNAL = 500
_LEAST_RETRIED = 500
_STATUSES: tuple[tuple[type[PilotfishError], int, str], ...] = (
    (ContextFullError, BAD_REQUEST, "context_length_exceeded"),
    (UnsupportedError, BAD_REQUEST, "unsupported"),
    (NoTokenLeftError, BAD_REQUEST, "no_token_left"),
    (InvalidArgumentError, BAD_REQUEST, "invalid_value"),
    (EngineBusyError, 503, "engine_busy"),
    (OutOfMemoryError, 503, "out_of_memory"),
)


class ApiError(Exception):
    """An answer in place of the one that was asked for."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``param`` is the field that is to blame, if one is."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def content(self) -> dict[str, Any]:
        """The protocol's error object."""
        kind = "server_error" if self.status >= _LEAST_RETRIED else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def invalid(message: str, *, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """A request that is wrong in itself."""
    return ApiError(BAD_REQUEST, message, code=code, param=param)


def api_error(error: Exception) -> ApiError:
    """What a client is told of an exception; only what is meant for users is quoted."""
    if isinstance(error, ApiError):
        return error
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return ApiError(status, str(error), code=code)
    if isinstance(error, PilotfishError):
        return ApiError(INTERNAL, str(error), code=type(error).__name__)
    return ApiError(INTERNAL, "the server failed, and its log on stderr says why", code="internal_error")


def client_gone() -> ApiError:
    """For a task whose client does not wait any more: nobody reads it."""
    return ApiError(CLIENT_GONE, "the client went away", code="client_gone")
