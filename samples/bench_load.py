"""How long a bundle takes to load, of several installations in turns: python samples/bench_load.py BUNDLE [PYTHON...].

Each PYTHON (default: this one) has a pilotfish; A B A B ... loads, each in a process of its own whose imports are not
counted, with the files in the page cache. Wall time and processor time of `Engine(BUNDLE)`: medians with the least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

CHILD = """
import json, resource, sys, time
from pilotfish import Engine
def used():
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime
before, start = used(), time.perf_counter()
engine = Engine(sys.argv[1])
print(json.dumps({"wall": time.perf_counter() - start, "processor": used() - before}))
engine.close()
"""


def main() -> None:
    """Parse, load in turns, print medians and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {python: [] for python in args.pythons}
    for number in range(args.rounds + 1):
        for python in args.pythons:
            command = [python, "-c", CHILD, args.bundle]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            if number > 0:  # the first warms the page cache and measures passes
                found[python].append(json.loads(done.stdout.splitlines()[-1]))
    summary = {}
    for python, loads in found.items():
        summary[python] = {
            name: [statistics.median(each[name] for each in loads), min(each[name] for each in loads)]
            for name in ("wall", "processor")
        }
        print(
            python,
            *(
                f"{name} {1e3 * median:.0f} ms (least {1e3 * least:.0f})"
                for name, (median, least) in summary[python].items()
            ),
        )
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
