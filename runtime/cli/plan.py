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

    A budget, or what is free on a GPU, limits the context, and on a GPU weights that fit nowhere else are streamed from
    host memory. Nothing is loaded.
    """
    try:
        info = memory_plan(
            bundle, device=device, memory_budget=memory_budget, max_context=max_context, acceptance=acceptance
        )
    except BudgetTooSmallError:
        _show(bundle, memory_plan(bundle, device=device, max_context=max_context, acceptance=acceptance))
        raise
    _show(bundle, info)
    if info.free_device_memory:
        show(f"free on {device}: {format_bytes(info.free_device_memory)}")
    elif device != "cpu":
        note(f"there is no {device} here to compare with; pilotfish doctor says why")
    write_json(json_file, dataclasses.asdict(info))


def _show(bundle: str, info: EngineInfo) -> None:
    rows = [(name, format_bytes(size)) for name, field in _PARTS.items() if (size := getattr(info, field))]
    out().print(table(bundle, ("part", "memory"), rows))
    show(f"context: {info.max_context} tokens in {info.num_blocks} blocks of {info.block_size}")
    show(f"prompts: in passes of at most {info.prefill_chunk} tokens")
    if info.target_streamed_bytes:
        streamed = format_bytes(info.target_streamed_bytes)
        show(f"streamed: {streamed} of the target's weights stay in host memory and come to the GPU in every pass")
