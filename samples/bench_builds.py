"""Speeds of two installations beside each other: python samples/bench_builds.py BUNDLE PYTHON PYTHON.

Each PYTHON has a pilotfish: one that a compiler here has built and one of a wheel, or two versions. Both load the
bundle in processes of their own and do the same work in turns, A B B A ..., a part of a second at a time, so that what
else the machine does falls on both. Ratios are the second's time to the first's, turn by turn: the median, where it may
lie (95 %, resampled), and the middle half of all turns. Different tokens are an error. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys

CHILD = """
import json, sys, time
from pilotfish import Engine
from pilotfish.bindings import calls

PROMPT = "Once upon a time there was a fish who"
plain = {"max_new_tokens": 48, "num_draft_tokens": 0, "ignore_eos": True}
with Engine(sys.argv[1], threads=int(sys.argv[2]), calibration="off") as engine:
    source = "draft" if engine.info.has_draft else "head" if engine.info.has_head else "lookup"
    work = {
        "plain": lambda turn: engine.generate(PROMPT, **plain),
        "sampled": lambda turn: engine.generate(PROMPT, **plain, temperature=0.8, seed=turn),
        source: lambda turn: engine.generate(PROMPT, max_new_tokens=96, num_draft_tokens=4, source=source,
                                             ignore_eos=True),
        "prompt": lambda turn: engine.generate([100 + turn, *range(1000, 1255)], max_new_tokens=1),
    }
    print(json.dumps([calls.cpu_kernels(), list(work)]), flush=True)
    for line in sys.stdin:
        what, turn = line.split()
        clock, processor = time.perf_counter(), time.process_time()
        result = work[what](int(turn))
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        print(json.dumps([clock, processor, list(result.token_ids)]), flush=True)
"""


class Installation:
    """A process of one Python with an engine."""

    def __init__(self, python: str, bundle: str, threads: int) -> None:
        command = [python, "-c", CHILD, bundle, str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.kernels, self.kinds = self._answer()

    def run(self, kind: str, turn: int) -> tuple[float, float, list[int]]:
        """Seconds by the clock, seconds of processor time, and the tokens."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write(f"{kind} {turn}\n")
        self._process.stdin.flush()
        clock, processor, ids = self._answer()
        return clock, processor, ids

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def _answer(self) -> list:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"an installation ended: exit code {self._process.wait()}")
        return json.loads(line)


def spread(ratios: list[float]) -> dict[str, float]:
    """The median, where it may lie, and the middle half."""
    draw = random.Random(1)  # noqa: S311 - for resampling
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(1000))
    quarters = statistics.quantiles(ratios, n=4)
    return {"median": statistics.median(ratios), "low": medians[24], "high": medians[974],
            "quarter": quarters[0], "three_quarters": quarters[2]}  # fmt: skip


def compare(first: Installation, second: Installation, turns: int) -> dict[str, dict[str, dict[str, float]]]:
    """Of each kind of work, the spreads of ratios by "clock" and by "processor"."""
    ratios: dict[str, dict[str, list[float]]] = {kind: {"clock": [], "processor": []} for kind in first.kinds}
    for turn in range(turns + 1):
        for kind in first.kinds:
            order = [first, second] if turn % 2 == 0 else [second, first]
            times = {installation: installation.run(kind, turn) for installation in order}
            if times[first][2] != times[second][2]:
                sys.exit(f"{kind}: tokens differ in turn {turn}: {times[first][2]} and {times[second][2]}")
            if turn > 0:  # the first warms caches
                ratios[kind]["clock"].append(times[second][0] / times[first][0])
                ratios[kind]["processor"].append(times[second][1] / times[first][1])
    return {kind: {how: spread(values) for how, values in found.items()} for kind, found in ratios.items()}


def main() -> None:
    """Reads the command line, prints a line of each kind of work, and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("pythons", nargs=2, metavar="PYTHON")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    first, second = (Installation(python, args.bundle, args.threads) for python in args.pythons)
    print(f"{first.kernels} and {second.kernels} kernels, {args.threads} threads, {args.turns} turns")
    found = compare(first, second, args.turns)
    for kind, by in found.items():
        for how, ratio in by.items():
            print(f"{kind:8} {how:9} {ratio['median']:.3f} (95 %: {ratio['low']:.3f} to {ratio['high']:.3f}; "
                  f"middle half {ratio['quarter']:.3f} to {ratio['three_quarters']:.3f})")  # fmt: skip
    first.close()
    second.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
