"""Bundles that are wrong in several related places at once must be refused or generate: they may not do harm.

    python tests/fuzz/fuzz.py                                  # the corpus, then 3,000 inputs
    python tests/fuzz/fuzz.py --inputs 100000 --seed 7         # a long run; Ctrl-C and --first N go on later
    python tests/fuzz/fuzz.py --only mtp --inputs 500
    python tests/fuzz/fuzz.py --recipe build/fuzz/failures/pair-1-42.json

It needs build/sanitize (see .ci/run) and a pilotfish that can export. seeds.py exports a tiny bundle of every kind;
propose.py makes a recipe of an input's number, a few edits of the manifest, graphs, weights and tokenizer that belong
together; edits.py applies them, with hashes recomputed, to a copy in memory-backed storage; open_bundle.cpp loads the
copy in a process forked from one that has ONNX Runtime, with the address and undefined-behaviour sanitizers, and
generates with every source. It is a failure if that process crashes, is reported by a sanitizer, does not end, takes
memory beyond its budget, opens files through ONNX Runtime, or ends in an error that pilotfish calls a bug of its own.

A failing recipe is reduced to the edits that matter and saved, with the report, beside a line that repeats it. Once
mended, it moves to corpus/, whose recipes begin every run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edits import EditedBundle, Seed
from propose import propose
from seeds import KINDS, make_seeds
from server import SANITIZED, Outcome, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).resolve().parent / "corpus"
WORK = ROOT / "build" / "fuzz"
PROGRESS_SECONDS = 60
MOST_SAVED = 3  # recipes of one kind of failure that a run keeps


@dataclass(frozen=True)
class Input:
    """A recipe and the name under which it fails."""

    name: str
    kind: str
    edits: list[Any]


class Fuzzer:
    """Tries recipes on as many servers as there are cores."""

    def __init__(self, scratch: Path, *, jobs: int, server: Path) -> None:
        self._scratch = scratch
        seeds = make_seeds(WORK / "seeds")
        for kind, bundle in seeds.items():
            shutil.copytree(bundle, scratch / kind)  # hard links need one file system
        self.seeds = {kind: Seed(scratch / kind) for kind in seeds}
        self._servers = [Server(scratch / "pair", scratch / f"report{job}", server) for job in range(jobs)]
        self.endings: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.close()

    def try_recipe(self, job: int, kind: str, edits: list[Any]) -> Outcome:
        """One recipe on one of the servers."""
        folder = self._scratch / f"input{job}"
        shutil.rmtree(folder, ignore_errors=True)
        bundle = EditedBundle(self.seeds[kind])
        bundle.apply(edits)
        bundle.write(folder)
        return self._servers[job].run(folder)

    def run(self, inputs: Iterator[Input]) -> None:
        """All inputs, each on the server that is free first."""
        self._inputs, self._started = inputs, time.monotonic()
        self._shown = self._started
        with ThreadPoolExecutor(len(self._servers)) as pool:
            list(pool.map(self._work, range(len(self._servers))))

    def _work(self, job: int) -> None:
        while True:
            with self._lock:
                each = next(self._inputs, None)
            if each is None:
                return
            outcome = self.try_recipe(job, each.kind, each.edits)
            with self._lock:
                self.endings[outcome.ending.split()[0]] += 1
                if outcome.failure:
                    self._keep(job, each, outcome)
                self._show(each)

    def _show(self, last: Input) -> None:
        now = time.monotonic()
        if now > self._shown + PROGRESS_SECONDS:
            self._shown = now
            count = self.endings.total()
            print(f"{count} inputs, the last {last.name}, {count / (now - self._started):.1f} a second", flush=True)

    def _keep(self, job: int, failed: Input, outcome: Outcome) -> None:
        """Saves a failing recipe, as few edits as fail alike, and shows how to repeat it."""
        self.failures[outcome.failure] += 1
        if self.failures[outcome.failure] > MOST_SAVED:
            return
        edits = failed.edits
        for edit in list(edits):
            fewer = [each for each in edits if each is not edit]
            if fewer and self.try_recipe(job, failed.kind, fewer).failure == outcome.failure:
                edits = fewer
        folder = WORK / "failures"
        folder.mkdir(parents=True, exist_ok=True)
        recipe = {"failure": outcome.failure, "kind": failed.kind, "edits": edits}
        path = folder / f"{failed.name}.json"
        path.write_text(json.dumps(recipe), encoding="utf-8")
        path.with_suffix(".txt").write_text(outcome.report, encoding="utf-8")
        print(
            f"FAILED {outcome.failure}\n  {edits}\n  python tests/fuzz/fuzz.py --recipe {path.relative_to(ROOT)}",
            flush=True,
        )


def recipes(paths: list[Path]) -> Iterator[Input]:
    """Those of files."""
    for path in paths:
        recipe = json.loads(path.read_text(encoding="utf-8"))
        yield Input(path.stem, recipe["kind"], recipe["edits"])


def random_inputs(seeds: dict[str, Seed], kinds: tuple[str, ...], seed: int, numbers: range) -> Iterator[Input]:
    """A number and the seed say all about an input."""
    for number in numbers:
        kind = kinds[number % len(kinds)]
        yield Input(f"{kind}-{seed}-{number}", kind, propose(seeds[kind], random.Random(f"{seed}-{number}")))


def check_seeds(fuzzer: Fuzzer) -> None:
    """Bundles without an edit generate: otherwise nothing is being tested."""
    for kind in fuzzer.seeds:
        outcome = fuzzer.try_recipe(0, kind, [])
        if outcome.ending != "generated":
            raise SystemExit(f"the {kind} bundle itself: {outcome.ending}\n{outcome.report}")


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=3000, help="random inputs after the corpus")
    parser.add_argument("--first", type=int, default=0, help="number of the first input, to go on with a run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=KINDS, help="kind of bundle")
    parser.add_argument("--recipe", type=Path, help="try one saved recipe and show its report")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--server", type=Path, default=SANITIZED / "open_bundle", help="another build of open_bundle")
    return parser.parse_args()


def main() -> int:
    """Exit status 1 if an input failed."""
    given = arguments()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        fuzzer = Fuzzer(Path(scratch), jobs=1 if given.recipe else given.jobs, server=given.server)
        if given.recipe:
            (recipe,) = recipes([given.recipe])
            outcome = fuzzer.try_recipe(0, recipe.kind, recipe.edits)
            print(outcome.report or outcome.ending)
            return int(bool(outcome.failure))
        check_seeds(fuzzer)
        kinds = (given.only,) if given.only else KINDS
        numbers = range(given.first, given.first + given.inputs)
        random_ones = random_inputs(fuzzer.seeds, kinds, given.seed, numbers)
        fuzzer.run(itertools.chain(recipes(sorted(CORPUS.glob("*.json"))), random_ones))
        fuzzer.close()
    for failure, times in fuzzer.failures.most_common():
        print(f"{times:6d}  {failure}")
    print(f"{fuzzer.endings.total()} bundles in {time.monotonic() - started:.0f} s: {dict(fuzzer.endings)}")
    return int(bool(fuzzer.failures))


if __name__ == "__main__":
    sys.exit(main())
