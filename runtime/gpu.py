"""What there is of a GPU, and what is missing: for doctor and bench."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.bindings import PilotfishError, calls

from .memory import format_bytes
from .ort import ort_for

if TYPE_CHECKING:
    from pilotfish.bindings import CudaInfo

_COPY_ENGINE = 90  # from here on a kernel starts before the one before it has ended, and the copy engine feeds it


def gpu_name(index: int) -> str:
    """A GPU's name and the newest CUDA that its driver runs."""
    info = calls.cuda_info(index, measure=False)
    return f"{info.name}, driver for CUDA {version_text(info.driver_version)}"


def describe_gpus() -> dict[str, str]:
    """Rows about every GPU that this process may use; one that says what is missing where there is none."""
    try:
        first = calls.cuda_info(0, measure=True)
    except PilotfishError as error:
        return {"GPU": f"none: {error}", "CUDA provider": _describe_provider(has_gpu=False)}
    rows = _describe(0, first)
    for index in range(1, first.num_devices):
        rows |= _describe_other(index)
    return rows | {"CUDA provider": _describe_provider(has_gpu=True)}


def version_text(version: int) -> str:
    """CUDA's version, "13.0" of 13000."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _describe_other(index: int) -> dict[str, str]:
    try:
        return _describe(index, calls.cuda_info(index, measure=True))
    except PilotfishError as error:
        return {f"cuda:{index}": f"cannot be used: {error}"}


def _describe(index: int, info: CudaInfo) -> dict[str, str]:
    name = f"cuda:{index}"
    path = "early launch and bulk copies" if info.compute_capability >= _COPY_ENGINE else "asynchronous copies"
    return {
        name: f"{info.name}, compute capability {_capability(info)}, {info.num_multiprocessors} multiprocessors",
        f"{name} memory": f"{format_bytes(info.free_bytes)} free of {format_bytes(info.total_bytes)}",
        f"{name} bandwidth": f"{info.read_bytes_per_second / 1e9:.0f} GB/s read by a kernel that does nothing else",
        f"{name} driver": f"runs CUDA up to {version_text(info.driver_version)}",
        f"{name} kernels": f"of CUDA {version_text(info.build_version)} for {info.architectures}; {path}",
    }


def _describe_provider(*, has_gpu: bool) -> str:
    try:
        library = str(ort_for("cuda"))
        info = calls.cuda_info(0, measure=False, ort_library=library) if has_gpu else None
    except PilotfishError as error:
        return f"cannot be used: {error}"
    found = f"{calls.ort_version(library)} {library}"
    return found if info is None else f"{found}; {_describe_provider_kernels(info)}"


def _describe_provider_kernels(info: CudaInfo) -> str:
    if info.has_provider_kernels:
        return "its kernels run on cuda:0"
    return (
        f"it has no kernels for cuda:0 ({_capability(info)}), which older bundles and models that are not fused whole "
        "need (pilotfish info names their nodes); export older bundles again"
    )


def _capability(info: CudaInfo) -> str:
    return f"{info.compute_capability // 10}.{info.compute_capability % 10}"
