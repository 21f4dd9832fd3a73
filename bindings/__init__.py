"""All that knows C: the cffi module cut from pilotfish.h, its handles, and its status codes as exceptions.

Importing it fails when the library that was loaded is not the one this package was built with.
"""

from __future__ import annotations

from . import calls
from .errors import (
    BudgetTooSmallError,
    BundleCorruptError,
    BundleFileMissingError,
    BundleVersionError,
    ContextFullError,
    CudaError,
    InternalError,
    InvalidArgumentError,
    OnnxRuntimeFailedError,
    OnnxRuntimeMissingError,
    OnnxRuntimeVersionError,
    OutOfMemoryError,
    PairMismatchError,
    PilotfishError,
    UnsupportedError,
)
from .handle import EngineHandle, RequestHandle
from .paths import include_dir, library_path
from .records import (
    Device,
    EngineInfo,
    EngineOptions,
    Finish,
    Model,
    Origin,
    RequestOptions,
    RequestStats,
    Token,
)

__all__ = [
    "BudgetTooSmallError",
    "BundleCorruptError",
    "BundleFileMissingError",
    "BundleVersionError",
    "ContextFullError",
    "CudaError",
    "Device",
    "EngineHandle",
    "EngineInfo",
    "EngineOptions",
    "Finish",
    "InternalError",
    "InvalidArgumentError",
    "Model",
    "OnnxRuntimeFailedError",
    "OnnxRuntimeMissingError",
    "OnnxRuntimeVersionError",
    "Origin",
    "OutOfMemoryError",
    "PairMismatchError",
    "PilotfishError",
    "RequestHandle",
    "RequestOptions",
    "RequestStats",
    "Token",
    "UnsupportedError",
    "calls",
    "include_dir",
    "library_path",
]

if calls.version() != calls.header_version():
    message = (
        f"libpilotfish is version {calls.version()}, this package was built against {calls.header_version()}: "
        "reinstall pilotfish"
    )
    raise ImportError(message)
