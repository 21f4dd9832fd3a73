"""What single passes cost, and how near they come to what the memory and the arithmetic of this machine allow."""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import Device, InvalidArgumentError, Model, calls

from .devices import parse_device

if TYPE_CHECKING:
    from .engine import Engine

VERIFY_ROWS = (1, 2, 4, 8, 16)
# Drafted tokens that a verification of the most rows has; the row before them is the last token emitted.
MAX_DRAFT_TOKENS = max(VERIFY_ROWS) - 1
_LEAST_REPEATS = 3
_READ_BYTES = 256 << 20  # far more than the caches of a processor hold
_READ_REPEATS = 5


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Median milliseconds of passes after a context."""

    context: int
    verify_ms: dict[int, float]
    """Of the target, by number of rows."""
    draft_ms: float | None
    """Of one row of the draft model; None: there is none."""
    wide_rows: int
    """Of the widest pass, which prompts run in."""
    wide_ms: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a pass needs, beside what the machine was measured to give."""

    bytes_per_pass: int
    """Weights and the cached context that a pass of one row reads."""
    operations_per_row: int
    """Two for each parameter."""
    bytes_per_second: float
    """Read by threads that do nothing else, measured on the spot."""
    operations_per_second: float
    """The highest rate that this bundle's kernels reached here, in the widest pass or another one."""
    float32_operations_per_second: float
    """Of numpy's product of two matrices on the host, for comparison; kernels of small integers are faster."""

    def floor_ms(self, num_rows: int) -> float:
        """The least milliseconds of a pass by these rates."""
        reading = self.bytes_per_pass / self.bytes_per_second
        # A bundle whose manifest counts no parameters tells no operations, and has no rate of them.
        computing = num_rows * self.operations_per_row / self.operations_per_second if self.operations_per_row else 0.0
        return 1e3 * max(reading, computing)

    def bytes_reached(self, milliseconds: float) -> float:
        """Bytes a second of a pass that takes so long."""
        return self.bytes_per_pass / (milliseconds / 1e3)


def context_of_all(engine: Engine) -> int:
    """Tokens for which the target and, where there is one, the draft model have positions."""
    return min(engine.info.max_context, *(model.max_positions for model in engine.manifest.models))


def context_to_time(engine: Engine, wanted: int, num_rows: int) -> int:
    """The context nearest to ``wanted`` that leaves room for a pass of so many rows.

    Raises:
        InvalidArgumentError: none does.
    """
    if engine.info.max_context < num_rows:
        raise InvalidArgumentError(
            f"the context holds {engine.info.max_context} tokens, and passes of {num_rows} are timed: give a larger "
            "--max-context"
        )
    return min(wanted, engine.info.max_context - num_rows, context_of_all(engine) - 1)


def time_passes(engine: Engine, *, context: int, repeats: int, seconds: float) -> PassTimes:
    """Times passes in turn, ``repeats`` times or, from the third time on, as long as ``seconds`` last."""
    end = time.perf_counter() + seconds
    target: dict[int, list[float]] = {rows: [] for rows in VERIFY_ROWS}
    draft: list[float] = []
    wide_rows = max(min(engine.info.prefill_chunk, engine.info.max_context), *VERIFY_ROWS)
    wide: list[float] = []
    for repeat in range(repeats):
        if repeat >= _LEAST_REPEATS and time.perf_counter() > end:
            break
        for rows in VERIFY_ROWS:
            target[rows] += engine.time_pass(rows, context=context, num_repeats=1).tolist()
        if engine.info.has_draft:
            draft += engine.time_pass(1, context=context, num_repeats=1, model=Model.DRAFT).tolist()
        if repeat < _LEAST_REPEATS:
            wide += engine.time_pass(wide_rows, context=0, num_repeats=1).tolist()
    return PassTimes(
        context=context,
        verify_ms={rows: 1e3 * statistics.median(times) for rows, times in target.items()},
        draft_ms=1e3 * statistics.median(draft) if draft else None,
        wide_rows=wide_rows,
        wide_ms=1e3 * statistics.median(wide),
    )


def roofline(engine: Engine, passes: PassTimes, device: str) -> Roofline:
    """Measures the machine and counts what a pass needs. It takes a quarter of a GB for a moment."""
    info, model = engine.info, engine.manifest.models[0]
    slots = max(1, info.num_blocks * info.block_size)
    cached = passes.context * info.target_cache_bytes // slots
    operations = 2 * model.parameters
    timed = passes.verify_ms | {passes.wide_rows: passes.wide_ms}
    chosen = parse_device(device)
    if chosen.kind is Device.CUDA:
        rate = calls.cuda_info(chosen.number, measure=True).read_bytes_per_second
    else:
        rate = read_bytes_per_second(info.num_threads)
    return Roofline(
        bytes_per_pass=info.target_weight_bytes + info.target_streamed_bytes + cached,
        operations_per_row=operations,
        bytes_per_second=rate,
        operations_per_second=max(rows * operations / (1e-3 * time) for rows, time in timed.items()),
        float32_operations_per_second=_float32_rate(),
    )


def read_bytes_per_second(num_threads: int) -> float:
    """The best of some readings of a large array, by threads that look for its largest number."""
    values = np.zeros(_READ_BYTES // 8, dtype=np.int64)  # numpy lets other threads run while it reduces
    values += 1  # pages are given when they are written
    parts = np.array_split(values, min(num_threads, os.cpu_count() or 1))
    best = np.inf
    with ThreadPoolExecutor(len(parts)) as threads:
        for _ in range(_READ_REPEATS):
            start = time.perf_counter()
            list(threads.map(np.max, parts))
            best = min(best, time.perf_counter() - start)
    return values.nbytes / best


def _float32_rate() -> float:
    size = 1024
    matrix = np.ones((size, size), dtype=np.float32)
    best = np.inf
    for _ in range(_READ_REPEATS):
        start = time.perf_counter()
        np.matmul(matrix, matrix)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
