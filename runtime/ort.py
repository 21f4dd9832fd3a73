"""Finds ONNX Runtime's shared library inside the installed wheel, without importing the wheel's Python module."""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

from pilotfish.bindings import OnnxRuntimeMissingError

_WHEELS = {"cpu": ("onnxruntime", "onnxruntime-gpu"), "cuda": ("onnxruntime-gpu",)}


def ort_library(device: str) -> Path:
    """Path of libonnxruntime.so.* for a device.

    Raises:
        OnnxRuntimeMissingError: no wheel that serves the device is installed, or it holds no library.
    """
    remedy = f"pip install 'pilotfish[{device}]'"
    names = [name for name in _WHEELS[device] if _is_installed(name)]
    if not names:
        raise OnnxRuntimeMissingError(f"ONNX Runtime is not installed ({' or '.join(_WHEELS[device])}): {remedy}")
    # find_spec of a top-level package locates it without running it.
    spec = util.find_spec("onnxruntime")
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        libraries = sorted(Path(folder, "capi").glob("libonnxruntime.so.*"))
        if libraries:
            return libraries[-1]
    raise OnnxRuntimeMissingError(
        f"{names[0]} {metadata.version(names[0])} has no libonnxruntime.so.* in {folders}: {remedy}"
    )


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
