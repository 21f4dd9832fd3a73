"""What Engine's arguments ask of the native library, and the memory plan they lead to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pilotfish.bindings import EngineInfo, EngineOptions, calls, limits

from .devices import parse_device
from .load_arguments import LoadArguments
from .manifest import read_manifest
from .memory import parse_bytes, program_bytes
from .option_checks import check_int
from .speculation import DEFAULT_ACCEPTANCE, SpeculationArguments

if TYPE_CHECKING:
    from pathlib import Path


def memory_plan(
    bundle: str | Path,
    *,
    device: str = "cpu",
    memory_budget: int | str | None = None,
    max_context: int | None = None,
    max_draft_tokens: int = limits.ENGINE.max_draft_tokens,
    num_sequences: int = limits.ENGINE.num_sequences,
    prefill_chunk: int | None = None,
    acceptance: str = DEFAULT_ACCEPTANCE,
) -> EngineInfo:
    """What Engine would need with these arguments, which it explains, from the manifest alone: no model is loaded.

    Raises:
        BudgetTooSmallError: the plan does not fit the budget, or what is free on the GPU.
        BundleFileMissingError, BundleCorruptError, BundleVersionError: there is no such bundle, or it is damaged.
        InvalidArgumentError: a value outside its range.
    """
    manifest = read_manifest(bundle)
    options = engine_options(
        device=device,
        threads=None,
        memory_budget=memory_budget,
        max_context=max_context,
        max_draft_tokens=max_draft_tokens,
        num_sequences=num_sequences,
        prefill_chunk=prefill_chunk,
        library="",
        speculation=SpeculationArguments(acceptance=acceptance),
    )
    return calls.plan(str(bundle), replace(options, program_bytes=program_bytes(manifest)))


def engine_options(
    *,
    device: str,
    threads: int | None,
    memory_budget: int | str | None,
    max_context: int | None,
    max_draft_tokens: int,
    num_sequences: int,
    prefill_chunk: int | None,
    library: str,
    max_wait_ms: int | None = None,
    speculation: SpeculationArguments | None = None,
    loading: LoadArguments | None = None,
) -> EngineOptions:
    """The C options of Engine's arguments, within the limits that the library has."""
    bounded = {
        "threads": (threads, limits.MOST_THREADS),
        "max_context": (max_context, limits.MOST_CONTEXT),
        "prefill_chunk": (prefill_chunk, limits.MOST_PREFILL_CHUNK),
        "max_wait_ms": (max_wait_ms, limits.MOST_WAIT_MS),
    }
    for name, (value, most) in bounded.items():
        if value is not None:
            check_int(name, value, 1, most)
    check_int("max_draft_tokens", max_draft_tokens, 0, limits.MOST_DRAFT_TOKENS)
    check_int("num_sequences", num_sequences, 1, limits.MOST_SEQUENCES)
    speculation = speculation or SpeculationArguments()
    loading = loading or LoadArguments()
    kind, number = parse_device(device)
    return EngineOptions(
        **speculation.options(),
        **loading.options(),
        ort_library=library,
        device=kind,
        device_index=number,
        num_threads=threads,
        max_context=max_context,
        max_draft_tokens=max_draft_tokens,
        num_sequences=num_sequences,
        prefill_chunk=prefill_chunk,
        max_wait_ms=max_wait_ms,
        memory_budget_bytes=None if memory_budget is None else parse_bytes(memory_budget),
    )
