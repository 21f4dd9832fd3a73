"""Plain decoding beside llama.cpp and OpenVINO GenAI, interleaved in one run (A B C A B C ...).

    python samples/bench_peers.py BUNDLE --llama-bench PATH --gguf FILE [--openvino-python PYTHON]

BUNDLE and FILE hold the same model (int4 bundle, Q4_0 GGUF). Every engine gets the same threads, prompt and output
lengths; each figure is the median over the rounds with its range, and ratios are taken round by round, so that a
machine whose speed drifts favours nobody. Peers run in processes of their own. The last line of stdout is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = """
import json, sys, time
from pilotfish import Engine
bundle, threads, prefill, prompt, new = sys.argv[1], *map(int, sys.argv[2:])
def peak():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM"))
with Engine(bundle, threads=threads, max_context=max(prefill, prompt + new) + 64) as engine:
    def run(length, count):
        ids = [20 + (i * 7919) % 200 for i in range(length)]
        return engine.generate(ids, max_new_tokens=count, num_draft_tokens=0, ignore_eos=True).stats
    run(16, 8)
    memory = run(prompt, new) and peak()
    decode, fill = run(prompt, new), run(prefill, 1)
seconds = decode.draft_seconds + decode.verify_seconds + decode.other_seconds
speeds = {"decode": (decode.num_new_tokens - 1) / seconds, "prefill": prefill / fill.prefill_seconds}
print(json.dumps({**speeds, "memory": memory}))
"""

OPENVINO = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, openvino as ov, openvino_genai as genai
model, threads, prefill, prompt, new = sys.argv[1], *map(int, sys.argv[2:])
pipe = genai.LLMPipeline(model, "CPU", {"INFERENCE_NUM_THREADS": threads})
def peak():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM"))
def run(length, count):
    ids = np.array([[20 + (i * 7919) % 200 for i in range(length)]], dtype=np.int64)
    config = genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
    return pipe.generate(genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids))), config).perf_metrics
run(16, 8); run(prefill, 2)
decode, fill = run(prompt, new), run(prefill, 2)
speeds = {"decode": decode.get_throughput().mean, "prefill": prefill / fill.get_ttft().mean * 1000}
print(json.dumps({**speeds, "memory": peak()}))
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """One engine's round: tokens a second and bytes."""

    decode: float
    prefill: float
    memory: float


def last_json(output: str) -> Figures:
    """The figures that a measuring child printed on its last line."""
    return Figures(**json.loads(output.strip().splitlines()[-1]))


def run_child(python: str, code: str, model: Path, args: argparse.Namespace) -> Figures:
    """Measure in a fresh process of the given interpreter."""
    lengths = [str(n) for n in (args.threads, args.prefill, args.prompt, args.new)]
    done = subprocess.run([python, "-c", code, str(model), *lengths], capture_output=True, text=True, check=True)
    return last_json(done.stdout)


def run_llama_bench(args: argparse.Namespace) -> Figures:
    """llama-bench, one repetition a call; decode is measured after a context of `prompt` tokens, as ours is."""
    common = [args.llama_bench, "-m", args.gguf, "-t", args.threads, "-r", 1, "-o", "json"]
    prefill, _ = run_timed([*common, "-p", args.prefill, "-n", 0])
    decode, memory = run_timed([*common, "-p", 0, "-n", args.new, "-d", args.prompt])
    return Figures(decode=decode, prefill=prefill, memory=memory)


def run_timed(command: list[object]) -> tuple[float, float]:
    """Average tokens/s that llama-bench reports, and the child's peak resident bytes."""
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        output = child.stdout.read() if child.stdout else b""
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command[0]} failed with exit code {child.returncode}")
    return float(json.loads(output)[0]["avg_ts"]), usage.ru_maxrss * 1024.0


def main() -> int:
    """Parse, measure in turn, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--llama-bench")
    parser.add_argument("--openvino-python")
    parser.add_argument("--gguf", type=Path)
    for name, default in (("threads", 2), ("prefill", 512), ("prompt", 128), ("new", 128), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    if (args.llama_bench or args.openvino_python) and not args.gguf:
        parser.error("--llama-bench and --openvino-python need --gguf FILE")
    engines: dict[str, Callable[[], Figures]] = {
        "pilotfish": lambda: run_child(sys.executable, OURS, args.bundle, args)
    }
    if args.llama_bench:
        engines["llama.cpp"] = lambda: run_llama_bench(args)
    if args.openvino_python:
        engines["OpenVINO GenAI"] = lambda: run_child(args.openvino_python, OPENVINO, args.gguf, args)
    rounds = [{name: measure() for name, measure in engines.items()} for _ in range(args.rounds)]
    print_table(rounds)
    return 0


def print_table(rounds: list[dict[str, Figures]]) -> None:
    """Medians with ranges, and the median of the round-by-round ratio of ours to each peer's."""
    summary: dict[str, dict[str, list[float]]] = {}
    print(f"{os.uname().machine}, {len(rounds)} interleaved rounds: median [min .. max], ours / peer")
    for name in rounds[0]:
        summary[name] = {}
        for field in ("decode", "prefill", "memory"):
            values = [getattr(each[name], field) for each in rounds]
            ratios = [getattr(each["pilotfish"], field) / getattr(each[name], field) for each in rounds]
            scale = 1e-6 if field == "memory" else 1.0
            low, middle, high = (scale * v for v in (min(values), statistics.median(values), max(values)))
            ratio = statistics.median(ratios)
            print(f"{name:15} {field:8} {middle:9.1f} [{low:8.1f} .. {high:8.1f}]  {ratio:5.2f}x")
            summary[name][field] = [middle / scale, low / scale, high / scale, ratio]
    print(json.dumps(summary))


if __name__ == "__main__":
    sys.exit(main())
