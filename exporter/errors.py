"""What can go wrong in an export or in reading a bundle. Every message names the value found and the remedy.

An error of a bundle is also the runtime's of the same kind, so that one `except` catches it whoever reads the bundle.
"""

from pilotfish.bindings import errors

_LONGEST = 300  # characters of a library's message


class ExportError(errors.PilotfishError, ValueError):
    """Base of every error that pilotfish.exporter raises on bad input."""


class OptionError(ExportError, errors.InvalidArgumentError):
    """An export option outside its range, or two options that exclude each other."""


class CheckpointError(ExportError):
    """The checkpoint is missing, is not a language model, or lacks a tensor."""


class UnusedTensorError(CheckpointError):
    """The checkpoint has tensors that an export would leave out, and `ignore_unused` was not given."""


class TokenizerError(ExportError):
    """The checkpoint's tokenizer is missing or cannot be written as tokenizer.json."""


class UnsupportedModelError(ExportError, errors.UnsupportedError):
    """A model whose computation the graph contract cannot express."""


class PairError(ExportError, errors.PairMismatchError):
    """Target and draft do not share a vocabulary."""


class ParityError(ExportError):
    """The exported graph's logits differ from torch's by more than the format's tolerance."""


class OutputExistsError(ExportError):
    """The output folder exists and overwriting was not asked for."""


class OutputFullError(ExportError):
    """The disk has no room for the bundle; nothing of it is left."""


class OutOfMemoryError(ExportError, errors.OutOfMemoryError):
    """The process may not have as much memory as the export or training needs."""


class UnexpectedError(ExportError, errors.InternalError):
    """A fault of pilotfish or of a library that it uses, whatever the input was."""


class BundleError(ExportError):
    """Base of the errors of a bundle that is read."""


class BundleMissingError(BundleError, errors.BundleFileMissingError):
    """The folder, its manifest or one of the manifest's files is not there."""


class BundleCorruptError(BundleError, errors.BundleCorruptError):
    """A file of the bundle has the wrong size, hash or content."""


class BundleVersionError(BundleError, errors.BundleVersionError):
    """The bundle was written in another format version."""


def in_one_line(error: BaseException) -> str:
    """What a library says of an error, without its line breaks and not at any length."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
