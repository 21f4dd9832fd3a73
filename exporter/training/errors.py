"""What can go wrong in a training run. Every message names the value found and the remedy; finished work is kept."""

from pilotfish.exporter.errors import ExportError, OptionError


class TrainingError(ExportError):
    """Base of the errors below."""


class TrainingOptionError(TrainingError, OptionError):
    """A training option outside its range, or two options that exclude each other."""


class MissingExtraError(TrainingError):
    """A package that the extra "train" brings is not installed."""


class DataError(TrainingError):
    """The training text is missing, unreadable or smaller than one batch."""


class UnsupportedTargetError(TrainingError):
    """A target whose next-token distribution the loss cannot compute."""


class DivergedError(TrainingError):
    """The loss is not a number any more."""


class StorageError(TrainingError):
    """A checkpoint or result could not be written; the last complete checkpoint is untouched."""


class ResumeError(TrainingError):
    """The output folder belongs to a run with other options, or its checkpoint cannot be read."""


class TimeLimitReached(TrainingError):  # noqa: N818  # not a failure: the run is continued by the next call
    """The time limit passed; all work is on disk and the same call continues it."""
