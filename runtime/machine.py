"""What this machine and installation are, for bench and doctor. The GPU's part is in gpu.py."""

from __future__ import annotations

import platform
from importlib import metadata

from pilotfish.bindings import Device, calls
from pilotfish.bindings.operating_system import describe_system, machine_memory, num_processors

from .devices import parse_device
from .gpu import gpu_name
from .ort import ort_library

PACKAGES = ("pilotfish", "onnxruntime", "onnxruntime-gpu", "numpy", "tokenizers", "torch", "transformers", "optimum")


def describe_machine(device: str = "cpu") -> dict[str, str | int]:
    """Processor, cores, memory, kernels and versions that a measurement on a device depends on."""
    chosen = parse_device(device)
    facts: dict[str, str | int] = {"gpu": gpu_name(chosen.number)} if chosen.kind is Device.CUDA else {}
    return facts | {
        "cpu": calls.cpu_name(),
        "cores": calls.cpu_cores(),
        "memory_bytes": machine_memory().total,
        "kernels": calls.cpu_kernels(),
        "system": describe_system(),
        "python": platform.python_version(),
        "pilotfish": calls.version(),
        "onnxruntime": calls.ort_version(str(ort_library(chosen.extra))),
    }


def describe_cores() -> str:
    """The threads that an engine takes by default, beside the processors that the system shows where these are more."""
    usable, shown = calls.cpu_cores(), num_processors()
    if usable == shown:
        return str(usable)
    return f"{usable} to be used, of {shown} processors (threads of one core, or a CPU quota, take the rest)"


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that matter here, the missing ones left out."""
    installed = {str(entry.metadata["Name"]).lower(): entry.version for entry in metadata.distributions()}
    return {name: installed[name] for name in PACKAGES if name in installed}
