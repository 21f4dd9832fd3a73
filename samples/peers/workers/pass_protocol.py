"""What a worker of real_shapes.py speaks: a JSON line with a request comes in, a JSON line with seconds goes out.

{"rows": 8, "context": 256, "repeats": 5} asks for passes over rows after a context, {"prompt": 100, "tokens": 64} for
the seconds of greedy decoding from the first token to the last. The ids are ids_of(): engines read the same ones.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def ids_of(count: int) -> list[int]:
    """Ids of a prompt, none of which ends a text."""
    return [20 + (index * 7919) % 200 for index in range(count)]


def serve_passes(
    version: str, passes: Callable[[int, int, int], list[float]], decode: Callable[[int, int], float]
) -> None:
    """Answer requests until standard input ends.

    Args:
        version: of the engine.
        passes: seconds of each pass, of rows, context and repeats.
        decode: seconds of decoding, of the prompt's length and the number of new tokens.
    """
    out, sys.stdout = sys.stdout, sys.stderr  # engines print what they like
    print(json.dumps({"version": version}), file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "rows" in request:
            found = passes(request["rows"], request["context"], request["repeats"])
        else:
            found = [decode(request["prompt"], request["tokens"])]
        print(json.dumps({"seconds": found}), file=out, flush=True)
