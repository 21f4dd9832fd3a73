"""What this machine and installation are, for bench and doctor. The GPU's part is in gpu.py."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from pilotfish.bindings import Device, calls

from .devices import parse_device
from .gpu import gpu_name
from .ort import ort_library

PACKAGES = ("pilotfish", "onnxruntime", "onnxruntime-gpu", "numpy", "tokenizers", "torch", "transformers", "optimum")


def describe_machine(device: str = "cpu") -> dict[str, str | int]:
    """Processor, cores, memory, kernels and versions that a measurement on a device depends on."""
    chosen = parse_device(device)
    facts: dict[str, str | int] = {"gpu": gpu_name(chosen.number)} if chosen.kind is Device.CUDA else {}
    return facts | {
        "cpu": cpu_name(),
        "cores": calls.cpu_cores(),
        "memory_bytes": memory_bytes("MemTotal"),
        "kernels": calls.cpu_kernels(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "pilotfish": calls.version(),
        "onnxruntime": calls.ort_version(str(ort_library(chosen.extra))),
    }


def cpu_name() -> str:
    """The processor's name, or its architecture where the kernel does not tell."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe_cores() -> str:
    """The threads that an engine takes by default, beside the processors that the system shows where these are more."""
    usable, shown = calls.cpu_cores(), len(os.sched_getaffinity(0))
    if usable == shown:
        return str(usable)
    return f"{usable} to be used, of {shown} processors (threads of one core, or a CPU quota, take the rest)"


def memory_bytes(key: str) -> int:
    """A line of /proc/meminfo, such as MemTotal or MemAvailable, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/meminfo has no line {key}")


def huge_pages() -> str:
    """The kernel's transparent huge page mode: "always", "madvise", "never" or "unknown"."""
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists():
        return "unknown"
    return path.read_text().partition("[")[2].partition("]")[0]


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that matter here, the missing ones left out."""
    installed = {str(entry.metadata["Name"]).lower(): entry.version for entry in metadata.distributions()}
    return {name: installed[name] for name in PACKAGES if name in installed}
