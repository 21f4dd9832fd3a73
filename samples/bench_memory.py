"""Planned memory beside measured memory: python samples/bench_memory.py BUNDLE... [--contexts 512,4096].

Each case is a process of its own, which opens the bundle, fills the caches of all its sequences to the last token with
every source of drafts that the bundle has, and reads its largest resident set. Cases: contexts, numbers of sequences,
and budgets of which the plan makes what it can. "measured" is what the plan predicts: the largest resident set without
the pages of the bundle's files, "mapped", which the system may drop. "load" is the largest resident set when the bundle
has been loaded, above what is resident then. The last line of stdout is JSON.

--cgroup FOLDER, an empty memory control group that may be written: cases with a budget run in it, with the budget as
its limit, and their tokens must be those of an engine of the same context without one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pilotfish.runtime.memory import parse_bytes

CHILD = r"""
import hashlib, json, re, sys
from pathlib import Path
from pilotfish import Engine
from pilotfish.runtime.memory import peak_memory_bytes, resident_memory_bytes
bundle, keywords = sys.argv[1], json.loads(sys.argv[2])
mapping = re.compile(re.escape(str(Path(bundle).resolve())) + r"/[^\n]*\n(?:[A-Z][^\n]*\n)*?Rss: +(\d+) kB")
tokens = hashlib.sha256()
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
        results = engine.generate_batch(prompts, max_new_tokens=new, ignore_eos=True, reuse_prefix=False, **source)
        tokens.update(repr([list(result.token_ids) for result in results]).encode())
    mapped = sum(1024 * int(found) for found in mapping.findall(Path("/proc/self/smaps").read_text()))
    parts = {name: getattr(info, name) for name in info.__slots__ if name.endswith("_bytes")}
    print(json.dumps({"parts": parts, "context": info.max_context, "chunk": info.prefill_chunk, "loaded": loaded,
                      "mapped": mapped, "peak": peak_memory_bytes() - mapped, "tokens": tokens.hexdigest()}))
"""


def measure(bundle: Path, keywords: dict[str, Any], group: Path | None = None) -> dict[str, Any] | None:
    """What the case took, in a control group if one is named; None where the plan refuses it."""
    command = [sys.executable, "-c", CHILD, str(bundle), json.dumps(keywords)]
    if group is not None:
        command = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "BudgetTooSmallError" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(f"{keywords}: status {done.returncode}\n{done.stderr}")
    return {"bundle": bundle.name, "keywords": keywords, **json.loads(done.stdout.splitlines()[-1])}


def measure_confined(bundle: Path, budget: str, group: Path) -> dict[str, Any] | None:
    """A budget as the limit of a control group; SystemExit where the system ends the process, or its tokens differ."""
    limits = [group / name for name in ("memory.max", "memory.limit_in_bytes") if (group / name).exists()]
    if not limits:
        raise SystemExit(f"{group} is no memory control group")
    limits[0].write_text(str(parse_bytes(budget)), encoding="ascii")
    case = measure(bundle, {"memory_budget": budget}, group)
    free = case and measure(bundle, {"max_context": case["context"]})
    if case and free and case["tokens"] != free["tokens"]:
        raise SystemExit(f"{budget}: the tokens are not those of an engine without a budget")
    return case


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
        f"{case['mapped'] / 1e6:.0f} | {planned / peak - 1:+.1%} | {above:.1%} |"
    )


def main() -> int:
    """Parse, measure one case after the other, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--contexts", default="512,2048,4096,8192")
    parser.add_argument("--sequences", default="4,16")
    parser.add_argument("--budgets", default="260MB,300MB,400MB")
    parser.add_argument("--cgroup", type=Path, help="an empty memory control group, for the cases with a budget")
    args = parser.parse_args()
    contexts, sequences = ([int(part) for part in text.split(",") if part] for text in (args.contexts, args.sequences))
    print(f"{os.uname().machine}, MB\n")
    print("| case | context | planned | measured | mapped | planned of it | load |\n|---|---|---|---|---|---|---|")
    found = []
    for bundle in args.bundles:
        for keywords in cases(contexts, sequences, [part for part in args.budgets.split(",") if part]):
            budget = keywords.get("memory_budget")
            is_confined = args.cgroup is not None and budget is not None
            case = measure_confined(bundle, budget, args.cgroup) if is_confined else measure(bundle, keywords)
            if case is None:
                print(f"| {bundle.name}: {keywords} | refused | | | | | |", flush=True)
                continue
            print(row(case), flush=True)
            found.append(case)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
