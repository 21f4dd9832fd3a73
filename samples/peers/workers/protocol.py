"""What every worker speaks: a JSON line with a prompt's ids comes in, a JSON line with times and tokens goes out.

A worker answers greedily, with batch size one, and ignores the end of text where its engine can.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def serve(name: str, version: str, stream: Callable[[list[int], int], Iterator[int]]) -> None:
    """Answer requests until standard input ends.

    Args:
        name: of the engine and how it drafts.
        version: of the engine.
        stream: yields token ids of a prompt's ids and a number of new tokens, each as soon as it is there.
    """
    out, sys.stdout = sys.stdout, sys.stderr  # engines print what they like
    print(json.dumps({"name": name, "version": version}), file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        first, ids = None, []
        for token in stream(request["ids"], request["new_tokens"]):
            first = time.perf_counter() if first is None else first
            ids.append(int(token))
        end = time.perf_counter()
        times = {"ttft": (first or end) - start, "decode": end - (first or end)}
        print(json.dumps({"ids": ids, **times}), file=out, flush=True)
