"""Decoding where the target's weights come from the disk: python samples/bench_mapped.py BUNDLE [--share 0.9].

A budget leaves out a share of the target's weights, which are mapped then. "kept": the system has their pages in
memory. "dropped": their pages are dropped before every round, and again and again while passes are measured at load, as
on a machine without room for them; rounds are timed without the dropping. Linux alone. The last line of stdout is JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import threading
import time
from pathlib import Path
from typing import Any

from pilotfish import Engine
from pilotfish.runtime.bench_prompts import built_in_prompts
from pilotfish.runtime.engine_options import memory_plan

LIMITS: dict[str, Any] = {"max_context": 512}
MADV_PAGEOUT = 21
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def drop_pages(file: Path) -> None:
    """Lets the system drop the pages of this process's mapping of the file, if it has one."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith(str(file)):
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if _LIBC.madvise(begin, end - begin, MADV_PAGEOUT) != 0:
                raise OSError(ctypes.get_errno(), "madvise")


class Dropping:
    """Drops pages again and again in a thread, while a bundle loads and measures its passes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ended.wait(0.002):
            drop_pages(self._file)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def generate(
    engine: Engine, prompt: tuple[int, ...], new: int, dropped: Path | None, **options: Any
) -> tuple[list[int], float]:
    """The tokens, and the seconds after the first one."""
    ids: list[int] = []
    seconds, start = 0.0, None
    with engine.stream(list(prompt), max_new_tokens=new, **options) as stream:
        events = iter(stream)
        while True:
            if dropped:
                drop_pages(dropped)
            start = time.perf_counter()
            event = next(events, None)
            if event is None:
                return ids, seconds
            if ids:
                seconds += time.perf_counter() - start
            ids.append(event.token_id)


def measure(engine: Engine, num_prompts: int, new: int, dropped: Path | None) -> dict[str, Any]:
    """Tokens a second of plain decoding and of auto, whose texts must be equal."""
    prompts = [prompt.ids for prompt in built_in_prompts(engine, new).prompts]
    prompts = prompts[:: len(prompts) // num_prompts][:num_prompts]
    found: dict[str, Any] = {}
    texts = {}
    for name, options in (("plain", {"source": "plain"}), ("auto", {})):
        results = [generate(engine, prompt, new, dropped, **options) for prompt in prompts]
        texts[name] = [ids for ids, _ in results]
        found[name] = sum(len(ids) - 1 for ids, _ in results) / sum(seconds for _, seconds in results)
    found["gain"] = found["auto"] / found["plain"]
    found["equal"] = texts["plain"] == texts["auto"]
    return found


def main() -> None:
    """Parse, measure resident, kept and dropped, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--share", type=float, default=0.9)
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--prompts", type=int, default=6)
    args = parser.parse_args()
    file = (args.bundle / "target.bin").resolve()
    found = {}
    for name in ("resident", "kept", "dropped"):
        whole = memory_plan(args.bundle, **LIMITS)
        left_out = 0 if name == "resident" else int(args.share * whole.target_weight_bytes)
        keywords = {**LIMITS, "memory_budget": whole.total_bytes - left_out, "calibration": "refresh"}
        if name == "dropped":
            with Dropping(file):
                engine = Engine(args.bundle, **keywords)
        else:
            engine = Engine(args.bundle, **keywords)
        with engine:
            found[name] = measure(engine, args.prompts, args.new, file if name == "dropped" else None)
            found[name]["mapped_bytes"] = engine.info.target_streamed_bytes
        row = found[name]
        print(
            f"{name}: {row['mapped_bytes'] >> 20} MiB mapped, plain {row['plain']:.1f} tokens/s, "
            f"auto {row['auto']:.1f} ({row['gain']:.2f}x), texts equal: {row['equal']}",
            flush=True,
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
