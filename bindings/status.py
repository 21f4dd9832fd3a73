"""pf_status -> exception."""

from __future__ import annotations

from typing import Any

from pilotfish.bindings import errors

from .library import ffi, lib

EXCEPTIONS: dict[int, type[errors.PilotfishError]] = {
    lib.PF_INVALID_ARGUMENT: errors.InvalidArgumentError,
    lib.PF_OUT_OF_MEMORY: errors.OutOfMemoryError,
    lib.PF_FILE_MISSING: errors.BundleFileMissingError,
    lib.PF_BUNDLE_CORRUPT: errors.BundleCorruptError,
    lib.PF_BUNDLE_VERSION: errors.BundleVersionError,
    lib.PF_PAIR_MISMATCH: errors.PairMismatchError,
    lib.PF_ORT_MISSING: errors.OnnxRuntimeMissingError,
    lib.PF_ORT_VERSION: errors.OnnxRuntimeVersionError,
    lib.PF_ORT_FAILED: errors.OnnxRuntimeFailedError,
    lib.PF_BUDGET_TOO_SMALL: errors.BudgetTooSmallError,
    lib.PF_CONTEXT_FULL: errors.ContextFullError,
    lib.PF_ENGINE_BUSY: errors.EngineBusyError,
    lib.PF_UNSUPPORTED: errors.UnsupportedError,
    lib.PF_CALLBACK_FAILED: errors.CallbackFailedError,
    lib.PF_NO_TOKEN_LEFT: errors.NoTokenLeftError,
    lib.PF_CUDA_FAILED: errors.CudaError,
    lib.PF_INTERNAL: errors.InternalError,
}


def check(status: int) -> None:
    """Raise the exception of ``status`` with the library's message, unless it is PF_OK."""
    if status != lib.PF_OK:
        raise exception(status, lib.pf_last_error())


def exception(status: int, message: Any) -> errors.PilotfishError:
    """The exception of a failure's status, with a message that C owns."""
    return EXCEPTIONS.get(status, errors.InternalError)(ffi.string(message).decode("utf-8", errors="replace"))
