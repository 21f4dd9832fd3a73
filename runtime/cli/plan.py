"""``pilotfish plan``: the memory a bundle needs, from its manifest alone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pilotfish.bindings import BudgetTooSmallError
from pilotfish.runtime.engine_options import memory_plan
from pilotfish.runtime.memory import MEMORY_PARTS, format_bytes
from pilotfish.runtime.speculation import DEFAULT_ACCEPTANCE

from .arguments import Acceptance, Bundle, Device, Json, MaxContext, MemoryBudget
from .console import note, out, show, table, write_json

if TYPE_CHECKING:
    from pilotfish.bindings import EngineInfo

_PARTS = MEMORY_PARTS | {"total": "total_bytes"}


def plan(
    bundle: Bundle,
    *,
    device: Device = "cpu",
    memory_budget: MemoryBudget = None,
    max_context: MaxContext = None,
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
    json_file: Json = None,
) -> None:
    """Show the memory a bundle needs, and what context fits.

    A budget, what is free on a GPU, or what this process may have limits the context; weights that have no room even so
    are streamed from host memory to a GPU, or mapped from the bundle's file. Nothing is loaded.
    """
    try:
        info = memory_plan(
            bundle, device=device, memory_budget=memory_budget, max_context=max_context, acceptance=acceptance
        )
    except BudgetTooSmallError:
        whole = memory_plan(bundle, device=device, max_context=max_context, acceptance=acceptance)
        _show(bundle, whole, on_cpu=device == "cpu")
        raise
    _show(bundle, info, on_cpu=device == "cpu")
    if info.free_device_memory:
        show(f"free on {device}: {format_bytes(info.free_device_memory)}")
    elif device != "cpu":
        note(f"there is no {device} here to compare with; pilotfish doctor says why")
    write_json(json_file, dataclasses.asdict(info))


def _show(bundle: str, info: EngineInfo, *, on_cpu: bool) -> None:
    rows = [(name, format_bytes(size)) for name, field in _PARTS.items() if (size := getattr(info, field))]
    out().print(table(bundle, ("part", "memory"), rows))
    show(f"context: {info.max_context} tokens in {info.num_blocks} blocks of {info.block_size}")
    show(f"prompts: in passes of at most {info.prefill_chunk} tokens")
    if info.target_streamed_bytes:
        show(_of_streamed(format_bytes(info.target_streamed_bytes), on_cpu=on_cpu))


def _of_streamed(size: str, *, on_cpu: bool) -> str:
    if on_cpu:
        return f"mapped: {size} of the target's weights stay in the bundle's file, and passes read them from there"
    return f"streamed: {size} of the target's weights stay in host memory and come to the GPU in every pass"
