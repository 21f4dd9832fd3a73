"""Finds ONNX Runtime's shared library inside the installed wheel, without importing the wheel's Python module."""

from __future__ import annotations

import ctypes
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


# What the CUDA provider links (names of CUDA 13 and of CUDA 12), in an order in which each finds the ones before it,
# and the pip package that brings it.
_CUDA_LIBRARIES = (
    (("libcudart.so.13", "libcudart.so.12"), "nvidia-cuda-runtime"),
    (("libcublasLt.so.13", "libcublasLt.so.12"), "nvidia-cublas"),
    (("libcublas.so.13", "libcublas.so.12"), "nvidia-cublas"),
    (("libcurand.so.10",), "nvidia-curand"),
    (("libcudnn.so.9",), "nvidia-cudnn-cu13"),
)


def load_cuda_libraries() -> None:
    """Load CUDA's libraries and cuDNN from the system or from pip's nvidia packages, for ONNX Runtime to find.

    Raises:
        OnnxRuntimeMissingError: one is in neither place; the message names it and the package that brings it.
    """
    spec = util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    for names, package in _CUDA_LIBRARIES:
        found = [str(path) for name in names for folder in folders for path in sorted(folder.glob(f"*/lib/{name}"))]
        if not any(_is_loaded(candidate) for candidate in (*names, *found)):
            raise OnnxRuntimeMissingError(
                f"{names[0]} cannot be loaded, which device 'cuda' needs: pip install {package}"
            )


def _is_loaded(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
