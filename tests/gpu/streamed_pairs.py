"""A target larger than its memory budget beside the bound of the link: python tests/gpu/streamed_pairs.py SHAPE FOLDER

Runs the random pair of a shape (random_bundle.py) with a budget that leaves out half of the target's weights: plain
decoding, chains of a draft that is right at about 75 % of the tokens, and of one that is always right. The bound is
what plain decoding would reach if a pass took no longer than the streamed bytes take on the link, measured here.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import random_bundle
from acceptance_pairs import copy_with_std

from pilotfish import Engine
from pilotfish.runtime.engine_options import memory_plan

STDS = {"about 75 % right": 0.45, "always right": 0.7}
CHAINS = (3, 5, 7, 11, 15)
NEW_TOKENS = 128
PROMPT = list(range(5, 105))
LIMITS: dict[str, Any] = {"device": "cuda", "max_context": 512, "max_draft_tokens": max(CHAINS)}
COPY_BYTES = 1 << 28
NUM_COPIES = 16


def say(line: str) -> None:
    """A line of the report."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def check(status: int, call: str) -> None:
    """A failed call of the driver ends the program."""
    if status != 0:
        raise SystemExit(f"{call} failed: CUDA error {status}")


def link_bandwidth() -> float:
    """Bytes a second of copies from page-locked host memory to the first GPU."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, stream, host, device = (ctypes.c_void_p() for _ in range(4))
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(cuda.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
    check(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(COPY_BYTES), 0), "cuMemHostAlloc")
    check(cuda.cuMemAlloc_v2(ctypes.byref(device), ctypes.c_size_t(COPY_BYTES)), "cuMemAlloc")
    ctypes.memset(host, 1, COPY_BYTES)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(NUM_COPIES):
            copied = cuda.cuMemcpyHtoDAsync_v2(device, host, ctypes.c_size_t(COPY_BYTES), stream)
            check(copied, "cuMemcpyHtoDAsync")
        check(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize")
        seconds.append(time.perf_counter() - start)
    check(cuda.cuMemFree_v2(device), "cuMemFree")
    check(cuda.cuMemFreeHost(host), "cuMemFreeHost")
    check(cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy")
    check(cuda.cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease")
    return COPY_BYTES * NUM_COPIES / min(seconds)


def tokens_a_second(engine: Engine, options: dict[str, Any], expected: list[int]) -> tuple[float, float]:
    """Tokens a second after the prompt, and the share of drafted tokens that was right; `expected` is filled once."""
    for _ in range(3):  # shapes are recorded in the first two
        result = engine.generate(PROMPT, max_new_tokens=NEW_TOKENS, ignore_eos=True, **options)
        if not expected:
            expected.extend(result.token_ids)
        if list(result.token_ids) != expected:
            raise SystemExit(f"FAILED: {options} gives another text than plain decoding")
    stats = result.stats
    return stats.tokens_per_second, stats.num_accepted / max(1, stats.num_drafted)


def measure(folder: Path, name: str, bandwidth: float) -> None:
    """The rows of one pair."""
    whole = memory_plan(folder, **LIMITS)
    budget = whole.total_bytes - whole.target_weight_bytes // 2
    with Engine(folder, memory_budget=budget, calibration="refresh", **LIMITS) as engine:
        streamed = engine.info.target_streamed_bytes
        expected: list[int] = []
        plain, _ = tokens_a_second(engine, {"num_draft_tokens": 0}, expected)
        bound = bandwidth / streamed
        say(f"\n{name}: budget {budget >> 20} MiB, {streamed >> 20} MiB streamed, bound {bound:.1f} tokens a second")
        say(f"{'plain':>10} {plain:8.1f} tokens a second, {plain / bound:.2f} of the bound")
        for drafted in CHAINS:
            speed, right = tokens_a_second(engine, {"num_draft_tokens": drafted}, expected)
            say(f"{f'K = {drafted}':>10} {speed:8.1f}, {speed / plain:.2f} of plain, {right:.0%} of drafted accepted")
        speed, _ = tokens_a_second(engine, {"source": "auto"}, expected)
        say(f"{'auto':>10} {speed:8.1f}, {speed / plain:.2f} of plain")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=sorted(random_bundle.PAIRS))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    base = args.folder / f"{args.shape}-0.7"
    if not (base / "manifest.json").exists():
        make = [sys.executable, str(Path(random_bundle.__file__)), args.shape, str(base), "--std", "0.7"]
        subprocess.run(make, check=True)
    bandwidth = link_bandwidth()
    say(f"link: {bandwidth / 1e9:.1f} GB/s from page-locked memory")
    for name, std in STDS.items():
        folder = args.folder / f"{args.shape}-{std}"
        if not (folder / "manifest.json").exists():
            copy_with_std(base, folder, random_bundle.PAIRS[args.shape][0], std)
        measure(folder, name, bandwidth)


if __name__ == "__main__":
    main()
