"""Loads what ONNX Runtime's CUDA provider is linked against, from the system or from pip's nvidia packages."""

from __future__ import annotations

import ctypes
import re
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.bindings import OnnxRuntimeMissingError

from .elf import needed_libraries

if TYPE_CHECKING:
    from collections.abc import Iterable

CUDA_PROVIDER = "libonnxruntime_providers_cuda.so"
# Libraries of CUDA and the pip packages that bring them, in an order in which each finds the ones before it. Packages
# for CUDA 12 end in -cu12; cuDNN's names its version always.
_PACKAGES = {
    "libcudart": "nvidia-cuda-runtime",
    "libnvrtc": "nvidia-cuda-nvrtc",
    "libcublasLt": "nvidia-cublas",
    "libcublas": "nvidia-cublas",
    "libcurand": "nvidia-curand",
    "libcufft": "nvidia-cufft",
    "libcudnn": "nvidia-cudnn",
}
# The provider opens it itself, by this name.
_CUDNN = "libcudnn.so.9"
_FIRST_WITHOUT_SUFFIX = 13


def load_cuda_libraries(ort_library: Path) -> None:
    """Load CUDA's libraries and cuDNN for the provider that lies beside ``ort_library``.

    Raises:
        OnnxRuntimeMissingError: one is neither in the system nor in pip's folders; the message names it and the package
            that brings it.
    """
    needed = {*needed_libraries(ort_library.with_name(CUDA_PROVIDER)), _CUDNN}
    order = list(_PACKAGES)
    names = sorted((name for name in needed if _stem(name) in _PACKAGES), key=lambda name: order.index(_stem(name)))
    for name in names:
        if not any(_is_loaded(candidate) for candidate in (name, *_in_pips_folders(name))):
            raise OnnxRuntimeMissingError(
                f"{name} cannot be loaded, which device 'cuda' needs: pip install {_package(name, needed)}, "
                "or pip install 'pilotfish[cuda]' for all of them"
            )


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _package(name: str, needed: Iterable[str]) -> str:
    """The package of a library, for the version of CUDA that the others say."""
    versions = [match[1] for other in needed if (match := re.fullmatch(r"libcudart\.so\.(\d+)", other))]
    cuda = int(versions[0]) if versions else _FIRST_WITHOUT_SUFFIX
    has_suffix = cuda < _FIRST_WITHOUT_SUFFIX or name == _CUDNN
    return _PACKAGES[_stem(name)] + (f"-cu{cuda}" if has_suffix else "")


def _in_pips_folders(name: str) -> list[str]:
    spec = util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    return [str(path) for folder in folders for path in sorted(folder.glob(f"*/lib/{name}"))]


def _is_loaded(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True
