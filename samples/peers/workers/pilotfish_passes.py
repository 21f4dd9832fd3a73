"""pilotfish for real_shapes.py: python pilotfish_passes.py BUNDLE THREADS CONTEXT."""

from __future__ import annotations

import sys
import time

from pass_protocol import ids_of, serve_passes

from pilotfish import Engine
from pilotfish.bindings import calls

MOST_ROWS = 8
bundle, threads, num_context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
engine = Engine(bundle, threads=threads, max_context=num_context, max_draft_tokens=MOST_ROWS - 1, calibration="off")


def passes(rows: int, context: int, repeats: int) -> list[float]:
    """Seconds of each pass over rows after a context, logits of all rows included."""
    return [float(seconds) for seconds in engine.time_pass(rows, context=context, num_repeats=repeats)]


def decode(prompt: int, tokens: int) -> float:
    """Seconds from the first token to the last."""
    options = {"max_new_tokens": tokens, "ignore_eos": True, "reuse_prefix": False, "source": "plain"}
    first = 0.0
    with engine.stream(ids_of(prompt), **options) as events:
        for _ in events:
            first = first or time.perf_counter()
    return time.perf_counter() - first


serve_passes(calls.version(), passes, decode)
