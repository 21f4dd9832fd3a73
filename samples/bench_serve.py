"""What a server costs: clients that ask `pilotfish serve` at once against generate_batch of the same prompts.

    python samples/bench_serve.py BUNDLE [--clients 8] [--rounds 5] [--new-tokens 96] [--threads N]

Both have an engine of their own with the same options, and take turns; the server is a process, and the clients are
threads of this one. Prompts are read once beforehand. Texts are compared. Last line JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bench_batch import PROMPTS, timed

from pilotfish import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "served"
MAX_CONTEXT = 1024


@contextlib.contextmanager
def served(asked: argparse.Namespace) -> Iterator[str]:
    """The address of a server."""
    options = {"port": 0, "name": NAME, "num-sequences": asked.clients, "max-context": MAX_CONTEXT}
    options |= {"threads": asked.threads} if asked.threads else {}
    flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "pilotfish", "serve", asked.bundle, *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            notes = process.stderr.readline() if process.stderr else ""
            found = re.search(r"http://\S+?:\d+", notes)
            if found is None:
                sys.exit(f"the server did not start: {notes}")
            yield found[0]
        finally:
            process.terminate()


def ask(address: str, prompt: str, asked: argparse.Namespace, *, is_streamed: bool) -> str:
    """A client's answer."""
    parts = urlsplit(address)
    body: dict[str, Any] = {
        "model": NAME,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": asked.new_tokens,
        "ignore_eos": True,
        "source": asked.source,
        "stream": is_streamed,
    }
    with contextlib.closing(http.client.HTTPConnection(str(parts.hostname), parts.port)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        content = connection.getresponse().read()
    if not is_streamed:
        return str(json.loads(content)["choices"][0]["message"]["content"])
    chunks = [json.loads(line[6:]) for line in content.split(b"\n\n") if line.startswith(b"data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def main() -> None:
    """Print the seconds of each way, and how the server's are to generate_batch's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--source", default="auto")
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    prompts = [PROMPTS[index % len(PROMPTS)] for index in range(asked.clients)]
    seconds: dict[str, list[float]] = {"generate_batch": [], "served": [], "streamed": []}
    with (
        served(asked) as address,
        Engine(asked.bundle, threads=asked.threads, num_sequences=asked.clients, max_context=MAX_CONTEXT) as engine,
        ThreadPoolExecutor(asked.clients) as pool,
    ):
        ids = [engine.encode_chat([{"role": "user", "content": prompt}]) for prompt in prompts]

        def batch() -> list[str]:
            options = {"max_new_tokens": asked.new_tokens, "ignore_eos": True, "source": asked.source}
            return [result.text for result in engine.generate_batch(ids, **options)]

        def clients(*, is_streamed: bool) -> list[str]:
            return list(pool.map(lambda prompt: ask(address, prompt, asked, is_streamed=is_streamed), prompts))

        ways = {
            "generate_batch": batch,
            "served": lambda: clients(is_streamed=False),
            "streamed": lambda: clients(is_streamed=True),
        }
        expected = {name: way() for name, way in ways.items()}["generate_batch"]  # the first of each is warm-up
        for _ in range(asked.rounds):
            for name, way in ways.items():
                texts, taken = timed(way)
                if texts != expected:
                    sys.exit(f"{name} gave other texts")
                seconds[name].append(taken)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, median in medians.items():
        ratios = [one / base for one, base in zip(seconds[name], seconds["generate_batch"], strict=True)]
        print(f"{name}: {median:.2f} s, {statistics.median(ratios):.3f} of generate_batch's (median of rounds)")
    print(json.dumps({"clients": asked.clients, "new_tokens": asked.new_tokens, "seconds": seconds}))


if __name__ == "__main__":
    main()
