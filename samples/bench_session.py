"""What it takes to save a session and to load it, and that it goes on with the same bits.

    python samples/bench_session.py build/smollm2 --tokens 2048

The last line is JSON: milliseconds of each, medians of several, loading in an engine that has just been opened and in
one that has used its caches before; the file is in the system's page cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish import Engine

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 7


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def timed(call: Callable[[], object]) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begin)


def main() -> None:
    """Prints the numbers."""
    given = arguments()

    def opened() -> Engine:
        return Engine(given.bundle, threads=given.threads, max_context=given.tokens + 256, calibration="off")

    options = {"max_new_tokens": 24, "ignore_eos": True, "num_draft_tokens": 3}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session"
        with opened() as engine:
            num_ids = engine.manifest.tokenizer.size
            ids = [(7919 * index + 13) % num_ids for index in range(given.tokens)]
            prefill = timed(lambda: engine.generate([*ids, 1], max_new_tokens=1))
            engine.generate([*ids, 1], **options)
            saving = [timed(lambda: engine.save_session(path, ids)) for _ in range(REPEATS)]
            expected = engine.generate([*ids, 5, 6, 7], **options)
        first = []
        for _ in range(REPEATS):
            with opened() as engine:
                first.append(timed(lambda: engine.load_session(path)))
        with opened() as engine:
            again = [timed(lambda: engine.load_session(path)) for _ in range(REPEATS)]
            found = engine.generate([*ids, 5, 6, 7], **options)
        same = (found.token_ids, found.logprobs) == (expected.token_ids, expected.logprobs)
        numbers = {
            "file_bytes": path.stat().st_size,
            "prefill": prefill,
            "save": statistics.median(saving),
            "load_into_new_engine": statistics.median(first),
            "load_again": statistics.median(again[1:]),
            "prefilled_after_loading": found.stats.num_prefilled_target,
            "same_tokens_and_logprobs": same,
            "same_drafts": found.stats.num_accepted == expected.stats.num_accepted,
        }
    print(json.dumps({key: round(value, 2) if isinstance(value, float) else value for key, value in numbers.items()}))


if __name__ == "__main__":
    main()
