"""Servers of the tests: in a thread of this process, or in a process of their own; and requests without a client."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pilotfish.runtime.serve.options import ServeOptions
from pilotfish.runtime.serve.server import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START_SECONDS = 120
THREADS = 1
NAME = "tiny"
TEXT = "/v1/completions"
PATIENCE_SECONDS = 60
# The tiny bundle has one token a byte and a context of 256, so that this one is short. It names the form of Hermes.
TOOL_TEMPLATE = (
    "{% for tool in tools or [] %}<tool_call>{{ tool.function.name }}\n{% endfor %}"
    "{% for message in messages %}{{ bos_token + message.role + '\n' + (message.content or '') }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.name + call.function.arguments.city }}{% endfor %}"
    "{{ '\n' }}{% endfor %}{{ bos_token + 'assistant\n' }}"
)


@contextlib.contextmanager
def serving(
    bundle: Path | dict[str, Path], engine_keywords: dict[str, Any] | None = None, **options: Any
) -> Iterator[str]:
    """The address of a server in a thread of this process."""
    bundles = bundle if isinstance(bundle, dict) else {NAME: bundle}
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            serve(
                {name: str(path) for name, path in bundles.items()},
                ServeOptions(port=0, **options),
                engine_keywords={"threads": THREADS, "calibration": "off", **(engine_keywords or {})},
                on_ready=lambda server, address: ready.put((server, address)),
            )
        except BaseException as error:
            ready.put(error)
            raise

    thread = threading.Thread(target=run, name="server")
    thread.start()
    answer = ready.get(timeout=START_SECONDS)
    if isinstance(answer, BaseException):
        raise answer
    server, address = answer
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join()


class Process(NamedTuple):
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code, and what it had to say."""
        self.process.send_signal(number)
        _, notes = self.process.communicate(timeout=START_SECONDS)
        return self.process.returncode, notes


@contextlib.contextmanager
def served(bundle: Path, *arguments: object) -> Iterator[Process]:
    """``pilotfish serve`` in a process."""
    command = [sys.executable, "-m", "pilotfish", "serve", bundle, "--port", 0, "--threads", THREADS]
    process = subprocess.Popen(
        [str(part) for part in (*command, "--calibration", "off", *arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+?:\d+", line)
        assert found, line + process.stderr.read()
        yield Process(process, found[0])
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


class Answer(NamedTuple):
    """Of a server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert self.content.keys() == {"error"}
        assert self.content["error"].keys() == {"message", "type", "param", "code"}
        return dict(self.content["error"])


def ask(
    address: str, path: str, body: object = None, *, headers: dict[str, str] | None = None, method: str | None = None
) -> Answer:
    """Send a request: bytes as they are, and anything else as JSON."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=START_SECONDS)
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method or ("GET" if sent is None else "POST"), path, sent, headers or {})
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, fields, response.read())
    finally:
        connection.close()


def metric(address: str, name: str) -> float:
    """The sum of a metric's values, over all labels."""
    text = ask(address, "/metrics").body.decode()
    values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    assert values, text
    return sum(map(float, values))


def text(**fields: Any) -> dict[str, Any]:
    return {"model": NAME, "prompt": "hi", "temperature": 0, "max_tokens": 3} | fields


ENDLESS = {"ignore_eos": True, "source": "plain"}
LONG = text(max_tokens=250, **ENDLESS)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def begun(address: str, body: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
    """The answer to a request whose headers have come; the connection is closed behind the block."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", TEXT, json.dumps(body).encode())
        with connection.getresponse() as response:  # which keeps the connection open, too
            yield response


def in_thread(call: Callable[[], Answer]) -> tuple[threading.Thread, list[Answer]]:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers
