"""Eight threads on one engine: what each request gives must be what it gives alone, to the bit, errors included.

    python tests/hammer/hammer.py                                        # 600 requests
    python tests/hammer/hammer.py --requests 20000 --processes 8         # a long run
    python tests/hammer/hammer.py --seed 3 --first-group 41 --groups 1   # one group again, as a failure says

Requests are drawn from the seed (cases.py) in groups. A group has an engine with options of its own, sometimes two at
once, over a tiny bundle of every kind in turn (tests/fuzz/seeds.py exports them). Each request is first made of a
fresh quiet engine that nobody else uses, with one thread; then eight threads make all of them of the group's engine, in
every way that there is (perform.py): to the end, cancelled, closed or dropped in the midst, in batches and tasks. At
last the engine must have all its cache blocks again.

It ends with status 1 if a result differs, an error is a bug's, a block is lost, or a group takes too long; with that
the stacks of all threads are shown. tests/sanitized.sh runs it under the sanitizers.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "tests"), str(ROOT / "tests" / "fuzz")]

from cases import Case, draw_case, pairs_of  # noqa: E402 - after the path
from compare import Expected, expect, fault_of, fault_of_logprobs  # noqa: E402
from groups import PER_GROUP, Group, draw_group  # noqa: E402
from perform import Seen, perform  # noqa: E402
from seeds import make_seeds  # noqa: E402

from pilotfish import Engine  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS = ROOT / "build" / "fuzz" / "seeds"
GROUP_SECONDS = 900  # more is a hang
MOST_SHOWN = 20  # failures


@dataclass
class Report:
    """What a run found."""

    ways: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, case: Case, found: Seen) -> None:
        """One request that was made."""
        with self.lock:
            self.ways[case.way] += 1
            self.endings.update([found.error.split(":")[0]] if found.error else map(str, found.finish_reasons))
            if not found.error:
                self.pairs |= pairs_of(case.choices)

    def fail(self, message: str) -> None:
        """Keep a failure and show the first ones."""
        with self.lock:
            self.failures.append(message)
            if len(self.failures) <= MOST_SHOWN:
                print(f"FAILED {message}", flush=True)


@dataclass
class Hammered:
    """An engine that is hammered, and what its requests give alone."""

    group: Group
    bundle: Path
    cases: list[Case]
    expected: list[Expected]
    engine: Engine
    found: dict[int, Seen] = field(default_factory=dict)


def prepare(group: Group, bundle: Path, seed: int, store: Path) -> Hammered:
    """Draw the group's requests, ask a fresh engine for each, and open the engine to hammer."""
    expected = []
    with Engine(bundle, **group.quiet_options) as engine:
        context = engine.info.max_context
    cases = [draw_case(seed, number, group.kind, context) for number in group.numbers]
    for case in cases:
        with Engine(bundle, **group.quiet_options) as engine:
            expected.append(expect(engine, case))
    stored = {"lookup_store": store / f"{group.name}.store"} if group.has_store else {}
    return Hammered(group, bundle, cases, expected, Engine(bundle, **group.options, **stored))


def hammer(hammered: Sequence[Hammered], num_threads: int, report: Report) -> None:
    """Make all requests of all engines by so many threads."""
    work: queue.SimpleQueue[tuple[Hammered, int]] = queue.SimpleQueue()
    for index in range(max(len(each.cases) for each in hammered)):
        for each in hammered:
            if index < len(each.cases):
                work.put((each, index))
    threads = [threading.Thread(target=run, args=(work,)) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in hammered:
        check(each, report)


def run(work: queue.SimpleQueue[tuple[Hammered, int]]) -> None:
    """One thread's share of the requests."""
    while True:
        try:
            each, index = work.get_nowait()
        except queue.Empty:
            return
        try:
            each.found[index] = perform(each.engine, each.cases[index])
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is no PilotfishError
            each.found[index] = Seen(error=f"InternalError: {type(error).__name__}: {error}")


def check(hammered: Hammered, report: Report) -> None:
    """Compare what came of the requests, and look for blocks that were lost."""
    group = hammered.group
    for index, (case, expected) in enumerate(zip(hammered.cases, hammered.expected, strict=True)):
        seen = hammered.found[index]
        report.add(case, seen)
        promised = case.is_reproducible(has_store=group.has_store)
        fault = fault_of(case, seen, expected, is_reproducible=promised)
        if not fault and not promised and not seen.error:
            with Engine(hammered.bundle, **group.quiet_options) as engine:
                fault = fault_of_logprobs(engine, case, seen)
        if fault:
            report.fail(f"{fault}\n  {group}\n  {case}\n  alone: {expected}\n  found: {seen}\n  {group.again}")
    gc.collect()
    info = hammered.engine.info
    if info.num_free_blocks + info.num_retained_blocks != info.num_blocks:
        report.fail(
            f"{info.num_blocks} blocks, {info.num_free_blocks} free, {info.num_retained_blocks} retained: {group}"
        )
    hammered.engine.close()


def run_groups(given: argparse.Namespace, report: Report) -> None:
    """The groups of this process."""
    bundles = make_seeds(SEEDS)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        numbers = range(given.first_group + given.part, given.first_group + given.groups, given.processes)
        for number in numbers:
            faulthandler.dump_traceback_later(GROUP_SECONDS, exit=True)
            groups = draw_group(given.seed, number)
            hammer(
                [prepare(each, bundles[each.kind], given.seed, Path(scratch)) for each in groups], given.threads, report
            )
            print(f"group {number}: {report.ways.total()} requests, {len(report.failures)} failures", flush=True)
        faulthandler.cancel_dump_traceback_later()


def run_processes(given: argparse.Namespace) -> int:
    """Groups in processes of their own; the exit status of those that failed."""
    command = [sys.executable, *sys.argv, "--processes", str(given.processes), "--part"]
    parts = [subprocess.Popen([*command, str(part)]) for part in range(given.processes)]
    return int(sum(part.wait() for part in parts) > 0)


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=600, help=f"in groups of {PER_GROUP}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--first-group", type=int, default=0, help="to go on with a run, or to repeat a group")
    parser.add_argument("--groups", type=int, help="instead of --requests")
    parser.add_argument("--part", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.groups is None:
        given.groups = -(-given.requests // PER_GROUP)
    return given


def main() -> int:
    """Exit status 1 if a request failed."""
    given = arguments()
    make_seeds(SEEDS)
    if given.processes > 1 and given.part is None:
        return run_processes(given)
    given.part = given.part or 0
    started = time.monotonic()
    report = Report()
    run_groups(given, report)
    print(f"ways: {dict(report.ways)}\nendings: {dict(report.endings)}")
    print(f"{len(report.pairs)} pairs of choices met in requests that ran")
    print(f"{report.ways.total()} requests in {time.monotonic() - started:.0f} s, {len(report.failures)} failures")
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main())
