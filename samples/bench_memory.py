"""Planned memory beside measured memory: python samples/bench_memory.py BUNDLE... [--contexts 512,4096].

Each case is a process of its own, which opens the bundle, fills the caches of all its sequences to the last token with
every source of drafts that the bundle has, and reads its largest resident set. Cases: contexts, numbers of sequences,
and budgets of which the plan makes what it can. "load" is the largest resident set when the bundle has been loaded,
above what is resident then. The last line of stdout is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CHILD = """
import json, sys
from pilotfish import Engine
from pilotfish.runtime.memory import peak_memory_bytes, resident_memory_bytes
bundle, keywords = sys.argv[1], json.loads(sys.argv[2])
with Engine(bundle, **keywords) as engine:
    loaded = {"resident": resident_memory_bytes(), "peak": peak_memory_bytes()}
    info = engine.info
    new = 24
    sources = [{"source": "plain"}, {"source": "lookup"}, {"temperature": 0.8, "seed": 1}]
    sources += [{"source": "draft", "num_draft_tokens": 8}] if info.has_draft else []
    sources += [{"source": "head", "num_draft_tokens": 2}] if info.has_head else []
    for number, source in enumerate(sources):
        prompts = [
            [3 + (at * 7919 + each * 104729 + number * 1299709) % 40000 for at in range(info.max_context - new)]
            for each in range(keywords.get("num_sequences", 1))
        ]
        engine.generate_batch(prompts, max_new_tokens=new, ignore_eos=True, reuse_prefix=False, **source)
    parts = {name: getattr(info, name) for name in info.__slots__ if name.endswith("_bytes")}
    print(json.dumps({"parts": parts, "context": info.max_context, "chunk": info.prefill_chunk, "loaded": loaded,
                      "peak": peak_memory_bytes()}))
"""


def measure(bundle: Path, keywords: dict[str, Any]) -> dict[str, Any] | None:
    """What the case took; None where the plan refuses it."""
    command = [sys.executable, "-c", CHILD, str(bundle), json.dumps(keywords)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "BudgetTooSmallError" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(done.stderr)
    return {"bundle": bundle.name, "keywords": keywords, **json.loads(done.stdout.splitlines()[-1])}


def cases(contexts: list[int], sequences: list[int], budgets: list[str]) -> list[dict[str, Any]]:
    """Arguments of Engine."""
    found: list[dict[str, Any]] = [{"max_context": context} for context in contexts]
    found += [{"max_context": 512, "num_sequences": number} for number in sequences]
    return found + [{"memory_budget": budget} for budget in budgets]


def row(case: dict[str, Any]) -> str:
    """A line of the table, in MB."""
    planned, peak, loaded = case["parts"]["total_bytes"], case["peak"], case["loaded"]
    above = loaded["peak"] / loaded["resident"] - 1
    asked = ", ".join(f"{name} {value}" for name, value in case["keywords"].items())
    return (
        f"| {case['bundle']}: {asked} | {case['context']} | {planned / 1e6:.0f} | {peak / 1e6:.0f} | "
        f"{planned / peak - 1:+.1%} | {above:.1%} |"
    )


def main() -> int:
    """Parse, measure one case after the other, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--contexts", default="512,2048,4096,8192")
    parser.add_argument("--sequences", default="4,16")
    parser.add_argument("--budgets", default="260MB,300MB,400MB")
    args = parser.parse_args()
    contexts, sequences = ([int(part) for part in text.split(",") if part] for text in (args.contexts, args.sequences))
    print(f"{os.uname().machine}, MB\n")
    print("| case | context | planned | measured | planned of it | load |\n|---|---|---|---|---|---|")
    found = []
    for bundle in args.bundles:
        for keywords in cases(contexts, sequences, [part for part in args.budgets.split(",") if part]):
            case = measure(bundle, keywords)
            if case is None:
                print(f"| {bundle.name}: {keywords} | refused | | | | |", flush=True)
                continue
            print(row(case), flush=True)
            found.append(case)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
