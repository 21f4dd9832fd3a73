"""``pilotfish doctor``: what is installed and what will be used."""

from __future__ import annotations

import typer

from pilotfish.bindings import PilotfishError, calls, library_path
from pilotfish.bindings.operating_system import huge_pages, machine_memory
from pilotfish.runtime.gpu import describe_gpus
from pilotfish.runtime.kernels import slow_kernels
from pilotfish.runtime.machine import describe_cores, package_versions
from pilotfish.runtime.memory import format_bytes
from pilotfish.runtime.ort import ort_library

from .arguments import Json
from .console import note, out, table, write_json

EXIT_INCOMPLETE = 2


def doctor(json_file: Json = None) -> None:
    """Show what is installed; exit code 2 if nothing can run."""
    memory = machine_memory()
    facts = {
        "libpilotfish": f"{calls.version()} {library_path()}",
        "processor": calls.cpu_name(),
        "cores": describe_cores(),
        "CPU kernels": calls.cpu_kernels(),
        "memory": f"{format_bytes(memory.available)} free of {format_bytes(memory.total)}",
        "huge pages": huge_pages(),
    }
    problem = None
    try:
        library = str(ort_library("cpu"))
        facts["ONNX Runtime"] = f"{calls.ort_version(library)} {library}"
    except PilotfishError as error:
        facts["ONNX Runtime"] = "missing"
        problem = error
    facts |= describe_gpus()
    facts |= package_versions()
    out().print(table("pilotfish doctor", ("what", "found"), facts.items(), align="left"))
    write_json(json_file, facts)
    if slow := slow_kernels():
        note(f"warning: {slow}")
    if problem is not None:
        note(f"error: {problem}")
        raise typer.Exit(EXIT_INCOMPLETE)
