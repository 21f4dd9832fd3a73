"""Planned memory of a GPU beside what is used of it: python samples/bench_gpu_memory.py BUNDLE... [--contexts 512].

Each case is a process of its own, which opens the bundle and fills the caches of all its sequences to the last token
with every source of drafts that the bundle has. Meanwhile this one asks the driver every few milliseconds how much of
the card is used; the most, less what was used before, is what the case needs. Nothing else may use the card. Cases:
contexts, numbers of sequences, and budgets, given as shares of the default plan. What each step of a case added is
told too: the context, the models with their sessions and widest passes, measured passes, recorded rounds, and requests;
"loading" is the most before the engine was there. The last line of stdout is JSON, with the parts of each plan.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish import Engine
from pilotfish.bindings import BudgetTooSmallError
from pilotfish.runtime.engine_options import memory_plan

MIB = 1 << 20
SECONDS_BETWEEN_READINGS = 0.003
DRAFTED = 15


class Card:
    """The first GPU, as the driver's management library (NVML) sees it."""

    class _Memory(ctypes.Structure):
        _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._handle = ctypes.c_void_p()
        self._check(self._library.nvmlInit_v2(), "nvmlInit")
        self._check(self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._handle)), "the card's handle")

    def used_bytes(self) -> int:
        """By all processes together."""
        memory = self._Memory()
        self._check(self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory)), "the card's memory")
        return int(memory.used)

    @staticmethod
    def _check(status: int, what: str) -> None:
        if status != 0:
            raise SystemExit(f"{what}: NVML error {status}")


@dataclass(frozen=True, slots=True)
class Case:
    """What a process planned and what it used."""

    bundle: str
    keywords: dict[str, Any]
    planned: int
    used: int
    loading: int
    steps: dict[str, int]
    context: int
    chunk: int
    parts: dict[str, int]

    def row(self) -> str:
        """A line of the table, in MiB."""
        asked = ", ".join(f"{name} {value}" for name, value in self.keywords.items())
        streamed = self.parts["target_streamed_bytes"] // MIB
        steps = " | ".join(str(added // MIB) for added in self.steps.values())
        return (
            f"| {self.bundle}: {asked} | {self.context} | {self.chunk} | {streamed} | {self.planned // MIB} | "
            f"{self.used // MIB} | {self.planned / self.used - 1:+.1%} | {self.loading // MIB} | {steps} |"
        )


STEPS = ("context", "models", "measured", "recorded", "requests")


class Steps:
    """How much of the card is used after each step of a case."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._seen = [card.used_bytes()]

    def end(self, num_steps: int) -> None:
        """So many steps have ended, and those that were left out before."""
        self._seen += [self._card.used_bytes()] * (1 + num_steps - len(self._seen))

    def told(self, stage: str, _done: int, _total: int) -> None:
        """An engine's stage begins."""
        self.end({"reading": 1, "measuring": 2, "recording": 3}[stage])

    def added(self) -> dict[str, int]:
        """By each."""
        return {name: self._seen[i + 1] - self._seen[i] for i, name in enumerate(STEPS)}


def run_case(bundle: str, keywords: dict[str, Any]) -> None:
    """The process of a case: loads, says so, fills the caches, and tells what it saw."""
    steps = Steps(Card())
    memory_plan(bundle, device="cuda", **keywords)  # the driver's context stays
    steps.end(1)
    with Engine(bundle, device="cuda", calibration="refresh", progress=steps.told, **keywords) as engine:
        steps.end(4)
        sys.stdout.write("loaded\n")
        sys.stdout.flush()
        info, new, size = engine.info, 24, engine.manifest.tokenizer.size
        sources: list[dict[str, Any]] = [{"source": "plain"}, {"source": "plain", "logprobs": 2}, {"source": "lookup"}]
        sources += [{"source": "auto"}, {"source": "plain", "temperature": 0.8, "seed": 1}]
        for name, has_it in (("draft", info.has_draft), ("head", info.has_head)):
            if has_it:
                sources += [{"source": name, "num_draft_tokens": count} for count in (1, 4, 15)]
                sources += [{"source": name, "tree": "dynamic", "tree_nodes": 15, "tree_depth": 3}]
        for number, source in enumerate(sources):
            prompts = [
                [
                    3 + (at * 7919 + each * 104729 + number * 1299709) % (size - 3)
                    for at in range(info.max_context - new)
                ]
                for each in range(keywords.get("num_sequences", 1))
            ]
            engine.generate_batch(prompts, max_new_tokens=new, ignore_eos=True, reuse_prefix=False, **source)
        steps.end(5)
        parts = {name: getattr(info, name) for name in info.__slots__ if name.endswith("_bytes")}
        seen = {"parts": parts, "context": info.max_context, "chunk": info.prefill_chunk, "steps": steps.added()}
        sys.stdout.write(json.dumps(seen))


def measure(card: Card, bundle: Path, keywords: dict[str, Any]) -> Case | None:
    """What the case took; None where the plan refuses it."""
    try:
        memory_plan(bundle, device="cuda", **keywords)
    except BudgetTooSmallError:
        return None
    before = most = card.used_bytes()
    command = [sys.executable, __file__, str(bundle), "--case", json.dumps(keywords)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(command, stdout=output, stderr=errors, text=True) as child,
    ):
        loading = 0
        while child.poll() is None:
            most = max(most, card.used_bytes())
            if loading == 0 and os.fstat(output.fileno()).st_size > 0:
                loading = most
            time.sleep(SECONDS_BETWEEN_READINGS)
        for file in (errors, output):
            file.seek(0)
        if child.returncode != 0:
            raise SystemExit(errors.read())
        told = json.loads(output.read().splitlines()[-1])
    planned = told["parts"]["total_bytes"]
    return Case(bundle.name, keywords, planned, most - before, loading - before, **told)


def cases(bundle: Path, contexts: list[int], sequences: list[int], shares: list[float]) -> list[dict[str, Any]]:
    """Arguments of Engine."""
    base: dict[str, Any] = {"max_draft_tokens": DRAFTED}
    found = [base | {"max_context": context} for context in contexts]
    found += [base | {"max_context": 512, "num_sequences": number} for number in sequences]
    whole = memory_plan(bundle, device="cuda", **base).total_bytes
    return found + [base | {"memory_budget": int(share * whole)} for share in shares]


def main() -> int:
    """Parse, measure one case after the other, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--contexts", default="512,2048,4096")
    parser.add_argument("--sequences", default="4,16")
    parser.add_argument("--shares", default="0.9,0.7")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)  # of a process that this one starts
    args = parser.parse_args()
    if args.case is not None:
        run_case(str(args.bundles[0]), args.case)
        return 0
    contexts, sequences = ([int(part) for part in text.split(",") if part] for text in (args.contexts, args.sequences))
    shares = [float(part) for part in args.shares.split(",") if part]
    columns = ("case, MiB", "context", "chunk", "streamed", "planned", "used", "planned of it", "loading", *STEPS)
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    card, found = Card(), []
    for bundle in args.bundles:
        for keywords in cases(bundle, contexts, sequences, shares):
            case = measure(card, bundle, keywords)
            if case is None:
                print(f"| {bundle.name}: {keywords} | refused |", flush=True)
                continue
            print(case.row(), flush=True)
            found.append({name: getattr(case, name) for name in Case.__slots__})
    print(json.dumps(found))
    return int(any(case["used"] > case["planned"] for case in found))


if __name__ == "__main__":
    sys.exit(main())
