"""64 clients at once, some of which go away: every answer is the engine's own, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import openai
import pytest
from serving import NAME, Process, metric, served

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pilotfish import Engine

NUM_CLIENTS = 64
SHARE_GOING_AWAY = 0.2
MOST_GROWTH_BYTES = 24 << 20
SETTLE_SECONDS = 60


class Kind(NamedTuple):
    """Of requests, of which there are few, so that the engine's own answers are soon had."""

    content: str
    options: dict[str, Any]

    @property
    def messages(self) -> list[Any]:
        return [{"role": "user", "content": self.content}]


CONTENTS = (
    ("hi", 4),
    ("Why is the sky blue?", 12),
    ("hi there", 7),
    ("x" * 70, 3),
    ("\u00e4\u00f6\u00fc", 10),
    ("Why?", 16),
)
KINDS = [
    Kind(content, {"max_new_tokens": num_tokens, "temperature": temperature, "seed": seed})
    for seed, (content, num_tokens) in enumerate(CONTENTS)
    for temperature in (0.0, 0.9)
]


class Held(NamedTuple):
    """What a process has."""

    num_threads: int
    num_files: int
    num_bytes: int


def held_by(server: Process) -> Held:
    folder = Path(f"/proc/{server.pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Held(int(status["Threads"]), len(list((folder / "fd").iterdir())), int(status["VmRSS"].split()[0]) * 1024)


async def ask_once(client: openai.AsyncOpenAI, kind: Kind, draw: random.Random) -> str | None:
    """The answer to a request; None if the client went away before it was whole."""
    options = kind.options
    asked: dict[str, Any] = {
        "model": NAME,
        "messages": kind.messages,
        "max_tokens": options["max_new_tokens"],
        "temperature": options["temperature"],
        "seed": options["seed"],
    }
    if draw.random() < SHARE_GOING_AWAY:
        return await go_away(client, asked, draw)
    if draw.random() < 0.5:
        return (await client.chat.completions.create(**asked)).choices[0].message.content
    chunks = await client.chat.completions.create(**asked, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])


async def go_away(client: openai.AsyncOpenAI, asked: dict[str, Any], draw: random.Random) -> None:
    if draw.random() < 0.5:  # amid a stream
        async with await client.chat.completions.create(**asked, stream=True) as stream:
            async for _ in stream:
                break
        return
    with contextlib.suppress(asyncio.TimeoutError, TimeoutError):  # while it waits, or at any other time
        await asyncio.wait_for(client.chat.completions.create(**asked), draw.uniform(0.001, 0.3))


async def load(address: str, num_requests: int, seed: int) -> list[tuple[int, str]]:
    """The kinds and answers of requests, without those that nobody waited for; an error ends the test."""
    draw = random.Random(seed)
    kinds = iter([draw.randrange(len(KINDS)) for _ in range(num_requests)])
    answers: list[tuple[int, str]] = []
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=300) as client:

        async def work(own: random.Random) -> None:
            for kind in kinds:
                answer = await ask_once(client, KINDS[kind], own)
                if answer is not None:
                    answers.append((kind, answer))

        await asyncio.gather(*(work(random.Random(seed * 1000 + index)) for index in range(NUM_CLIENTS)))
    return answers


def check_under_load(server: Process, expected: Sequence[str], num_requests: int) -> None:
    asyncio.run(load(server.address, NUM_CLIENTS, 1))  # threads, caches and pools are had once
    settle(server)
    before = held_by(server)
    answers = asyncio.run(load(server.address, num_requests, 2))
    settle(server)
    after = held_by(server)
    assert len(answers) > num_requests * (1 - 2 * SHARE_GOING_AWAY)
    assert [answer for _, answer in answers] == [expected[kind] for kind, _ in answers]
    assert after.num_threads <= before.num_threads
    assert after.num_files <= before.num_files
    assert after.num_bytes < before.num_bytes + MOST_GROWTH_BYTES
    assert metric(server.address, "pilotfish_waiting") == 0
    counted = metric(server.address, "pilotfish_generations_total")
    assert len(answers) <= counted <= num_requests + NUM_CLIENTS


def settle(server: Process) -> None:
    """Wait until what nobody waits for has ended, and then until all connections are closed."""
    wait_for(lambda: metric(server.address, "pilotfish_running") == 0)
    wait_for(lambda: num_connections(server) == 0)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def num_connections(server: Process) -> int:
    """Sockets, less the one that listens and the event loop's own pair."""
    links = [os.readlink(file) for file in Path(f"/proc/{server.pid}/fd").iterdir()]  # noqa: PTH115 - they are no paths
    return sum(link.startswith("socket:") for link in links) - 3


@pytest.mark.parametrize("num_requests", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_under_load(tool_bundle: Path, direct: Engine, num_requests: int) -> None:
    expected = [direct.chat(kind.messages, **kind.options).text for kind in KINDS]
    with served(tool_bundle, "--num-sequences", 8, "--max-queue", NUM_CLIENTS) as server:
        check_under_load(server, expected, num_requests)
        exit_code, notes = server.end()
    assert notes.splitlines()[-8:] == ["stopped"]  # no complaint
    assert exit_code == 0
