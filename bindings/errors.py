"""One exception class a pf_status; each is a PilotfishError and the builtin that fits it."""

from __future__ import annotations


class PilotfishError(Exception):
    """Base of everything pilotfish raises on purpose. The message names the value and the limit or the remedy."""


class InvalidArgumentError(PilotfishError, ValueError):
    """A value outside its range."""


class OutOfMemoryError(PilotfishError, MemoryError):
    """The system refused memory."""


class BundleFileMissingError(PilotfishError, FileNotFoundError):
    """A file of the bundle is missing or cannot be read."""


class BundleCorruptError(PilotfishError, ValueError):
    """A file of the bundle has the wrong size, hash or content, or its target gives no numbers."""


class BundleVersionError(PilotfishError, ValueError):
    """The bundle was written by another format version."""


class PairMismatchError(PilotfishError, ValueError):
    """Draft and target do not share a vocabulary."""


class OnnxRuntimeMissingError(PilotfishError, ImportError):
    """ONNX Runtime's shared library was not found or cannot be opened."""


class OnnxRuntimeVersionError(PilotfishError, ImportError):
    """The ONNX Runtime that was found is too old."""


class OnnxRuntimeFailedError(PilotfishError, RuntimeError):
    """ONNX Runtime reported an error."""


class BudgetTooSmallError(PilotfishError, MemoryError):
    """The memory plan does not fit the budget."""


class ContextFullError(PilotfishError, ValueError):
    """Prompt or output can never fit the context."""


class EngineBusyError(PilotfishError, RuntimeError):
    """Other generations hold the cache blocks that this one needs: there is room when one of them ends."""


class UnsupportedError(PilotfishError, NotImplementedError):
    """Not available on this device or in this build."""


class CallbackFailedError(PilotfishError, RuntimeError):
    """A callback of the caller's, such as a grammar's mask, failed; its own exception is the cause."""


class NoTokenLeftError(PilotfishError, ValueError):
    """Bias, bans and mask together leave no token to continue with."""


class CudaError(PilotfishError, RuntimeError):
    """A CUDA call failed; the message names it, its file and line."""


class InternalError(PilotfishError, RuntimeError):
    """A bug in pilotfish."""
