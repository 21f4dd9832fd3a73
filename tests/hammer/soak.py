"""Many mixed requests one after the other and together: memory settles, and no file handle or thread is left behind.

    python tests/hammer/soak.py                    # 3,000 requests
    python tests/hammer/soak.py --requests 50000

The requests are the hammer's: cancelled, dropped, failing, structured, in batches and tasks. Every cycle opens engines
over a bundle of another kind, with and without a lookup store, makes its requests by four threads, and closes them. The
first third warms up: pools and caches grow to what they need. From then on the process may have no more handles and
threads than before, and little more memory.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "tests"), str(ROOT / "tests" / "fuzz")]

from cases import draw_case  # noqa: E402 - after the path
from hammer import SEEDS  # noqa: E402
from perform import perform  # noqa: E402
from seeds import KINDS, make_seeds  # noqa: E402

from pilotfish import Engine  # noqa: E402

PER_CYCLE = 50
THREADS = 4
MOST_GROWN_KIB = 3 << 10
"""Of memory after the warm-up: 1.5 KiB a request of the usual 3,000. Threads' pools alone swing by 2 MiB."""
_M_ARENA_MAX = -8  # of malloc.h


@dataclass(frozen=True)
class Usage:
    """What the process has."""

    resident_kib: int
    num_handles: int
    num_threads: int

    @classmethod
    def now(cls) -> Usage:
        """After all that is garbage is free."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return cls(
            resident_pages * os.sysconf("SC_PAGE_SIZE") >> 10,
            sum(1 for _ in Path("/proc/self/fd").iterdir()),
            sum(1 for _ in Path("/proc/self/task").iterdir()),
        )


def run_cycle(bundle: Path, kind: str, seed: int, cycle: int, store: Path | None) -> None:
    """Opens an engine, makes its share of the requests, and closes it."""
    with Engine(bundle, threads=2, num_sequences=4, max_draft_tokens=15, max_context=192, lookup_store=store) as engine:
        numbers = iter(range(cycle * PER_CYCLE, (cycle + 1) * PER_CYCLE))
        lock = threading.Lock()

        def run() -> None:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                perform(engine, draw_case(seed, number, kind, engine.info.max_context))

        threads = [threading.Thread(target=run) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        info = engine.info
        if info.num_free_blocks + info.num_retained_blocks != info.num_blocks:
            raise SystemExit(f"cycle {cycle}, {kind}: blocks are lost: {info}")


def faults_of(usages: list[Usage]) -> list[str]:
    """What has grown since the warm-up."""
    warm = len(usages) // 3
    first, later = usages[:warm], usages[warm:]
    most_resident = max(usage.resident_kib for usage in first) + MOST_GROWN_KIB
    faults = []
    if later[-1].resident_kib > most_resident:
        faults.append(f"memory: {later[-1].resident_kib} KiB at the end, {most_resident} allowed after the warm-up")
    for name in ("num_handles", "num_threads"):
        before, after = max(getattr(usage, name) for usage in first), getattr(later[-1], name)
        if after > before:
            faults.append(f"{name}: {after} at the end, {before} after the warm-up")
    return faults


def main() -> int:
    """Exit status 1 if something grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=3000, help=f"in cycles of {PER_CYCLE}")
    parser.add_argument("--seed", type=int, default=2)
    given = parser.parse_args()
    # Every thread's own arena grows by itself, and what is left in them would hide a leak.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    bundles = make_seeds(SEEDS)
    started = time.monotonic()
    usages = []
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        for cycle in range(max(given.requests // PER_CYCLE, 6)):
            kind = KINDS[cycle % len(KINDS)]
            store = Path(scratch) / f"{kind}.store" if cycle // len(KINDS) % 2 else None
            run_cycle(bundles[kind], kind, given.seed, cycle, store)
            usages.append(Usage.now())
            if cycle % len(KINDS) == 0:
                print(f"cycle {cycle}: {usages[-1]}", flush=True)
    faults = faults_of(usages)
    print(f"{len(usages) * PER_CYCLE} requests in {time.monotonic() - started:.0f} s: {usages[-1]}", *faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
