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
    CallbackFailedError,
    ContextFullError,
    CudaError,
    EngineBusyError,
    InternalError,
    InvalidArgumentError,
    NoTokenLeftError,
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
    AS_MANY_AS_PAY,
    MOST_DRAFT_TOKENS,
    Acceptance,
    Calibration,
    CudaInfo,
    Decision,
    Device,
    DraftSource,
    EngineInfo,
    EngineOptions,
    Finish,
    Mask,
    Model,
    Origin,
    Reason,
    RequestOptions,
    RequestStats,
    Token,
)

__all__ = [
    "AS_MANY_AS_PAY",
    "MOST_DRAFT_TOKENS",
    "Acceptance",
    "BudgetTooSmallError",
    "BundleCorruptError",
    "BundleFileMissingError",
    "BundleVersionError",
    "Calibration",
    "CallbackFailedError",
    "ContextFullError",
    "CudaError",
    "CudaInfo",
    "Decision",
    "Device",
    "DraftSource",
    "EngineBusyError",
    "EngineHandle",
    "EngineInfo",
    "EngineOptions",
    "Finish",
    "InternalError",
    "InvalidArgumentError",
    "Mask",
    "Model",
    "NoTokenLeftError",
    "OnnxRuntimeFailedError",
    "OnnxRuntimeMissingError",
    "OnnxRuntimeVersionError",
    "Origin",
    "OutOfMemoryError",
    "PairMismatchError",
    "PilotfishError",
    "Reason",
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
