"""Servers as a whole: several bundles, one memory budget, commands that are refused, and signals."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from serving import LONG, TEXT, ask, begun, served, serving, text, wait_for

from pilotfish import Engine
from pilotfish.bindings import BudgetTooSmallError, InvalidArgumentError
from pilotfish.runtime.serve.options import ServeOptions
from pilotfish.runtime.serve.server import listen, serve

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine


def test_several_bundles_by_name(tool_bundle: Path, tiny_bundle: Path) -> None:
    with serving({"a": tool_bundle, "b": tiny_bundle}) as address:
        assert [model["id"] for model in ask(address, "/v1/models").content["data"]] == ["a", "b"]
        assert ask(address, TEXT, text(model="b")).content["model"] == "b"
        answer = ask(address, TEXT, {"prompt": "hi"})
        assert (answer.status, answer.error["message"]) == (404, "model is missing, must be one of a, b")


def test_bundles_share_a_memory_budget(tool_bundle: Path, tiny_bundle: Path) -> None:
    with Engine(tool_bundle, num_sequences=1, calibration="off") as engine:
        needed = engine.info.total_bytes
        own = needed - engine.info.program_bytes
    bundles = {"a": str(tool_bundle), "b": str(tiny_bundle)}
    told: list[str] = []

    def stop(server: Any, address: str) -> None:
        told.append(address)
        server.should_exit = True

    options = ServeOptions(port=0, num_sequences=1)
    with pytest.raises(BudgetTooSmallError, match="bundle 'b': "):
        serve(bundles, options, memory_budget=needed + own // 2, engine_keywords={"calibration": "off"}, on_ready=stop)
    assert told == []
    serve(bundles, options, memory_budget=3 * needed, engine_keywords={"calibration": "off"}, on_ready=stop)
    assert len(told) == 1


def test_two_servers_on_one_port(tool_bundle: Path, cli: CommandLine) -> None:
    with listen("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        finished = cli("serve", tool_bundle, "--port", port)
    assert finished.exit_code == 2
    assert finished.err.startswith(f"error: port {port} of 127.0.0.1 cannot be used: Address already in use")
    with pytest.raises(InvalidArgumentError, match="port 0 of nowhere cannot be used"):
        listen("nowhere", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "error: missing/manifest.json cannot be read"),
        (["{tiny}", "{tiny}"], "error: the bundles' names are tiny, tiny, must differ: give each a --name"),
        (
            ["{tiny}", "--name", "a", "--name", "b"],
            "error: --name is given 2 times, must be once for each of 1 bundles",
        ),
        (["{tiny}", "--api-key", " "], "error: --api-key is empty: leave it out, or give a key"),
        (["{tiny}", "--max-request", "much"], "error: memory size is 'much'"),
        (["{tiny}", "--memory-budget", "1MB"], "error: bundle 'tiny': "),
        (["{tiny}", "x", "--lookup-store", "s"], "error: --lookup-store belongs to one bundle, but 2 are given"),
    ],
)
def test_commands_that_are_refused(tool_bundle: Path, cli: CommandLine, arguments: list[str], message: str) -> None:
    finished = cli("serve", "--port", 0, *(each.format(tiny=tool_bundle) for each in arguments))
    assert finished.exit_code == 2
    assert message in finished.err


def test_sigterm_finishes_what_runs_and_leaves(tool_bundle: Path) -> None:
    with served(tool_bundle, "--num-sequences", 1) as server:
        with begun(server.address, LONG | {"stream": True}) as response:
            assert response.readline().startswith(b"data: ")
            server.process.send_signal(signal.SIGTERM)
            rest = response.read()
        assert b'"finish_reason":"length"' in rest
        assert rest.endswith(b"data: [DONE]\n\n")
        exit_code, notes = server.end(0)
    assert (exit_code, notes) == (0, "stopped\n")


@pytest.mark.parametrize(("grace", "num_signals"), [(0, 1), (30, 2)])
def test_what_runs_is_cut_short(tool_bundle: Path, grace: int, num_signals: int) -> None:
    asked = LONG | {"stream": True, "n": 60}
    with (
        served(tool_bundle, "--num-sequences", 1, "--grace", grace) as server,
        begun(server.address, asked) as response,
    ):
        response.readline()
        for _ in range(num_signals - 1):
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        exit_code, _ = server.end(signal.SIGINT)
        with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
            assert b"[DONE]" not in response.read()
    assert exit_code == 0


def test_clients_that_go_away_are_no_errors_of_the_servers(tool_bundle: Path) -> None:
    with served(tool_bundle) as server:
        parts = urlsplit(server.address)
        for headers in (b"", b"Host: localhost\r\nContent-Length: 99\r\n\r\n{"):  # before the body, and amid it
            with socket.create_connection((str(parts.hostname), parts.port or 0)) as connection:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\n" + headers)
        wait_for(lambda: 'status="499"} 1\n' in ask(server.address, "/metrics").body.decode())
        with begun(server.address, LONG | {"stream": True}) as response:
            response.readline()
        exit_code, notes = server.end()
    assert (exit_code, notes) == (0, "stopped\n")
