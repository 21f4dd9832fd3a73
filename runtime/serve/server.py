"""Opens bundles and serves them until a signal ends that: uvicorn runs the application of app.py."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import uvicorn

from pilotfish.bindings import BudgetTooSmallError, InvalidArgumentError
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.memory import parse_bytes, resident_memory_bytes

from .app import Limits, make_app
from .guard import Access
from .models import Model, Models
from .scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .options import ServeOptions

_ENDING = (signal.SIGINT, signal.SIGTERM)
# Of a connection. Clients give theirs up after 5 to 60 seconds, and have to be the first: what one sends at the moment
# in which the server gives it up is lost.
_IDLE_SECONDS = 75


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address, on which connections wait from now on.

    Raises:
        InvalidArgumentError: there is no such address here, or another program has it.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgumentError(
            f"port {port} of {host} cannot be used: {reason}: choose others with --host and --port"
        ) from error


def serve(
    bundles: Mapping[str, str],
    options: ServeOptions,
    *,
    memory_budget: int | str | None = None,
    engine_keywords: Mapping[str, Any] | None = None,
    on_ready: Callable[[uvicorn.Server, str], None] = lambda _server, _address: None,
) -> None:
    """Serve bundles, folders by their names, until SIGINT, SIGTERM or ``on_ready``'s server's ``should_exit``.

    Requests that are running then are finished, for ``grace_seconds``; a second signal ends them.

    Args:
        bundles: opened in their order.
        options: see there.
        memory_budget: of all together; each bundle has what those before it leave.
        engine_keywords: of Engine, for each of them.
        on_ready: told the server and its address as soon as it answers.

    Raises:
        PilotfishError: the address or a bundle cannot be used.
    """
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(options.host, options.port))
        keywords = {"num_sequences": options.num_sequences, **(engine_keywords or {})}
        models = Models([*_opened(bundles, options, memory_budget, keywords, stack)])
        access = Access(options.api_key, _is_loopback(listening.getsockname()[0]))
        app = make_app(models, access, Limits(options.most_body_bytes, options.most_seconds))
        server = _Server(_config(app, options), lambda server: on_ready(server, _address(listening)))
        with _signals_return():
            server.run(sockets=[listening])


def _opened(
    bundles: Mapping[str, str],
    options: ServeOptions,
    memory_budget: int | str | None,
    keywords: Mapping[str, Any],
    stack: contextlib.ExitStack,
) -> Iterator[Model]:
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    planned = 0
    for name, folder in bundles.items():
        # Each plan has all that the process holds already, the bundles before it included.
        held = resident_memory_bytes() if planned else 0
        # One byte is a budget too, and what does not fit it is refused with the table of what it needs.
        left = None if budget is None else max(1, budget - planned + held)
        try:
            engine = stack.enter_context(Engine(folder, memory_budget=left, **keywords))
        except BudgetTooSmallError as error:
            raise BudgetTooSmallError(f"bundle {name!r}: {error}") from error
        planned += engine.info.total_bytes - held
        scheduler = Scheduler(engine, num_sequences=options.num_sequences, most_waiting=options.most_waiting)
        stack.callback(scheduler.close)  # also where a second signal leaves nothing the time for it
        yield Model(name, engine, scheduler)


def _config(app: Any, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=options.grace_seconds,
        timeout_keep_alive=_IDLE_SECONDS,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )


class _Server(uvicorn.Server):
    """Says when it answers."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[uvicorn.Server], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready(self)


@contextlib.contextmanager
def _signals_return() -> Iterator[None]:
    """Uvicorn raises the signals that ended it once more behind itself: here they end nothing, and all is closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, lambda *_: None) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
