"""Checkpoint -> ONNX graphs -> bundle. Needs the extra "export"; the runtime does not import this package."""

from .bundle import check_bundle, read_manifest
from .errors import ExportError
from .formats import FormatDecision
from .model_summary import ModelSummary
from .options import ExportOptions, FormatChoice, ModelFormats
from .pipeline import ExportResult, export
from .progress import NoProgress, Progress

__all__ = [
    "ExportError",
    "ExportOptions",
    "ExportResult",
    "FormatChoice",
    "FormatDecision",
    "ModelFormats",
    "ModelSummary",
    "NoProgress",
    "Progress",
    "check_bundle",
    "export",
    "read_manifest",
]
