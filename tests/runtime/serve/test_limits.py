"""Limits of requests: the queue, size, time, the key, who may call, and clients that go away."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import openai
import pytest
from serving import ENDLESS, LONG, NAME, PATIENCE_SECONDS, TEXT, ask, begun, in_thread, metric, serving, text, wait_for

if TYPE_CHECKING:
    import threading
    from pathlib import Path


def test_a_full_queue_says_when_to_come_again(tool_bundle: Path, held: threading.Event) -> None:
    with serving(tool_bundle, num_sequences=1, most_waiting=1) as address:
        first, first_answers = in_thread(lambda: ask(address, TEXT, text()))
        wait_for(lambda: metric(address, "pilotfish_running") == 1)
        second, second_answers = in_thread(lambda: ask(address, TEXT, text()))
        wait_for(lambda: metric(address, "pilotfish_waiting") == 1)
        answer = ask(address, TEXT, text())
        assert (answer.status, answer.error["code"]) == (429, "queue_full")
        assert answer.error["message"].startswith("1 generations are waiting, and no more than 1 may: come again in ")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert metric(address, "pilotfish_refused_total") == 1
        held.set()
        for thread in (first, second):
            thread.join()
        assert [each.status for each in first_answers + second_answers] == [200, 200]
        with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:  # which comes again by itself
            assert client.completions.create(**text()).choices[0].text


def test_a_request_that_no_queue_has_room_for(tool_bundle: Path) -> None:
    with serving(tool_bundle, num_sequences=1, most_waiting=2) as address:
        assert ask(address, TEXT, text(n=3)).status == 200
        answer = ask(address, TEXT, text(n=4))
        assert (answer.status, answer.error["param"]) == (400, "n")
        assert answer.error["message"].startswith("the request asks for 4 generations, and this server takes at most 3")


def test_size_is_limited(tool_bundle: Path) -> None:
    with serving(tool_bundle, most_body_bytes=1000) as address:
        assert ask(address, TEXT, text(prompt="x" * 100)).status == 200
        answer = ask(address, TEXT, text(prompt="x" * 1000))
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert answer.error["message"] == "the request has more than 1000 bytes, which --max-request allows"


def test_time_is_limited(tool_bundle: Path, held: threading.Event) -> None:
    with serving(tool_bundle, num_sequences=1, most_seconds=0.5) as address:
        running, running_answers = in_thread(lambda: ask(address, TEXT, text()))
        wait_for(lambda: metric(address, "pilotfish_running") == 1)
        waiting = ask(address, TEXT, text(stream=True))
        assert (waiting.status, waiting.error["code"]) == (504, "time_limit")
        running.join()
        assert running_answers[0].error["message"].startswith("the request took longer than the 0.5 seconds")
        assert running_answers[0].headers["x-should-retry"] == "false"
        held.set()
        wait_for(lambda: metric(address, "pilotfish_running") == 0)
        assert ask(address, TEXT, text()).status == 200


def test_time_that_ends_within_a_stream_is_an_event(tool_bundle: Path, slow: None) -> None:  # noqa: ARG001
    with (
        serving(tool_bundle, most_seconds=2) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        stream = client.completions.create(model=NAME, prompt="hi", stream=True, max_tokens=250, extra_body=ENDLESS)
        assert next(stream).choices[0].text is not None
        with pytest.raises(openai.APIError, match="the request took longer than the 2 seconds"):
            list(stream)


def test_a_body_that_does_not_come(tool_bundle: Path) -> None:
    with serving(tool_bundle, most_seconds=0.3) as address:
        parts = urlsplit(address)
        with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
            assert connection.recv(1000).startswith(b"HTTP/1.1 504 ")


def test_the_key(tool_bundle: Path) -> None:
    with serving(tool_bundle, api_key="sesame") as address:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic sesame"}):
            for path, body in ((TEXT, text()), ("/v1/models", None), ("/metrics", None)):
                answer = ask(address, path, body, headers=headers)
                assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert ask(address, "/health").status == 200
        assert ask(address, "/").status == 200
        with openai.OpenAI(base_url=f"{address}/v1", api_key="sesame") as client:
            assert client.models.list().data[0].id == NAME
        with openai.OpenAI(base_url=f"{address}/v1", api_key="no") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "localhost:99"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "evil.example"}, 403),  # a name that was made to lead to this machine
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "["}, 403),
        ({"Host": "localhost:99", "Origin": "http://localhost:99"}, 200),
        ({"Host": "localhost:99", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:99", "Origin": "null"}, 403),
    ],
)
def test_pages_of_others_may_not_call(address: str, headers: dict[str, str], status: int) -> None:
    assert ask(address, "/v1/models", headers=headers).status == status


def test_a_client_that_goes_away_ends_its_generation(tool_bundle: Path, slow: None) -> None:  # noqa: ARG001
    with serving(tool_bundle, num_sequences=1) as address:
        with begun(address, LONG | {"stream": True}) as response:
            assert response.readline().startswith(b"data: ")
        wait_for(lambda: metric(address, "pilotfish_running") == 0)
        assert metric(address, "pilotfish_generated_tokens_total") < 50


def test_a_client_that_goes_away_before_an_answer_or_its_turn(tool_bundle: Path, held: threading.Event) -> None:
    with serving(tool_bundle, num_sequences=1) as address:
        parts = urlsplit(address)
        connections = []
        for name in ("running", "waiting"):
            connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE_SECONDS)
            connection.request("POST", TEXT, json.dumps(LONG).encode())
            wait_for(lambda name=name: metric(address, f"pilotfish_{name}") == 1)
            connections.append(connection)
        for connection in connections[::-1]:
            connection.close()
        wait_for(lambda: metric(address, "pilotfish_waiting") == 0)
        time.sleep(0.3)  # so that the server learns of the other one as well
        held.set()
        wait_for(lambda: metric(address, "pilotfish_running") == 0)
        assert metric(address, "pilotfish_generations_total") == 1
        assert metric(address, "pilotfish_generated_tokens_total") <= 2


def test_metrics_count(tool_bundle: Path) -> None:
    with serving(tool_bundle) as address:
        answers = [ask(address, TEXT, text(max_tokens=20, source="draft", num_draft_tokens=3)) for _ in range(3)]
        usages = [answer.content["usage"] for answer in answers]
        ask(address, TEXT, b"")
        ask(address, "/unknown/path")
        for name, field in (
            ("prompt", "prompt"),
            ("generated", "completion"),
            ("drafted", "drafted"),
            ("accepted", "accepted"),
        ):
            expected = sum(usage[f"{field}_tokens"] for usage in usages)
            assert metric(address, f"pilotfish_{name}_tokens_total") == expected
        assert metric(address, "pilotfish_generations_total") == 3
        lines = ask(address, "/metrics").body.decode().splitlines()
        assert 'pilotfish_requests_total{path="/v1/completions",status="200"} 3' in lines
        assert 'pilotfish_requests_total{path="/v1/completions",status="400"} 1' in lines
        assert 'pilotfish_requests_total{path="other",status="404"} 1' in lines
        assert "# TYPE pilotfish_running gauge" in lines
