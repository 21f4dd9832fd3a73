"""Finds ONNX Runtime's shared library inside the installed wheel, without importing the wheel's Python module."""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

from pilotfish.bindings import Device, OnnxRuntimeMissingError
from pilotfish.bindings.operating_system import ORT_LIBRARIES, ort_library_name

from .cuda_libraries import CUDA_PROVIDER, load_cuda_libraries
from .devices import parse_device

_WHEELS = {"cpu": ("onnxruntime", "onnxruntime-gpu"), "cuda": ("onnxruntime-gpu",)}


def ort_for(device: str) -> Path:
    """Path of ONNX Runtime's library for a device of parse_device(); for a GPU, all that its provider needs is loaded.

    Raises:
        InvalidArgumentError: there is no such device.
        OnnxRuntimeMissingError: something that must be installed is not.
    """
    chosen = parse_device(device)
    library = ort_library(chosen.extra)
    if chosen.kind is Device.CUDA:
        load_cuda_libraries(library)
    return library


def ort_library(extra: str) -> Path:
    """Path of ONNX Runtime's library for what the extra "cpu" or "cuda" of this package brings.

    Raises:
        OnnxRuntimeMissingError: no wheel that serves the device is installed, or it lacks a library.
    """
    remedy = f"pip install 'pilotfish[{extra}]'"
    names = [name for name in _WHEELS[extra] if _is_installed(name)]
    if not names and extra == "cuda" and _is_installed("onnxruntime"):
        raise OnnxRuntimeMissingError(
            f"onnxruntime {metadata.version('onnxruntime')} is installed, which has no CUDA provider: "
            f"pip uninstall onnxruntime, then {remedy}"
        )
    if not names:
        raise OnnxRuntimeMissingError(f"ONNX Runtime is not installed ({' or '.join(_WHEELS[extra])}): {remedy}")
    # find_spec of a top-level package locates it without running it.
    spec = util.find_spec("onnxruntime")
    folders = [Path(folder, "capi") for folder in (spec.submodule_search_locations or [])] if spec else []
    library = _library_of(names[0], folders)
    if library is None:
        raise OnnxRuntimeMissingError(
            f"{names[0]} {metadata.version(names[0])} has no {ORT_LIBRARIES} in {list(map(str, folders))}: {remedy}"
        )
    if extra == "cuda" and not library.with_name(CUDA_PROVIDER).exists():
        raise OnnxRuntimeMissingError(
            f"{library.parent} has no {CUDA_PROVIDER}, which onnxruntime-gpu brings; another wheel was installed over "
            f"it: pip uninstall onnxruntime onnxruntime-gpu, then {remedy}"
        )
    return library


def _library_of(wheel: str, folders: list[Path]) -> Path | None:
    """The wheel's own library, also where onnxruntime and onnxruntime-gpu share the folder."""
    own = ort_library_name(metadata.version(wheel))
    for folder in folders:
        libraries = sorted(folder.glob(ORT_LIBRARIES))
        if libraries:
            return next((library for library in libraries if library.name == own), libraries[-1])
    return None


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
