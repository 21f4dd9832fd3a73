"""What leaves the exporter and training is one of their own errors, whatever a library raised inside."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .errors import CheckpointError, ExportError, OutOfMemoryError, OutputFullError, UnexpectedError, in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "bad allocation",
    "not enough memory",
    "can't start new thread",
    "failed to map segment from shared object",
)
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def only_own_errors(doing: str) -> Iterator[None]:
    """Turns exceptions of libraries into ExportErrors; `doing` begins a sentence, such as "exporting model".

    Raises:
        OutOfMemoryError: memory ran out, whatever error followed from that.
        OutputFullError: the disk is full.
        CheckpointError: a file cannot be read.
        UnexpectedError: anything else.
    """
    try:
        yield
    except Exception as error:
        if _is_out_of_memory(error):
            raise OutOfMemoryError(
                f"{doing} needs more memory than this process may have; close other programs, raise its limit "
                "(ulimit -v), or use a machine with more"
            ) from error
        if isinstance(error, ExportError):
            raise
        if isinstance(error, OSError):
            where = error.filename or doing
            if error.errno in FULL:
                raise OutputFullError(f"the disk is full while writing {where}; free some space") from error
            raise CheckpointError(f"{where} cannot be read or written: {error.strerror or error}") from error
        raise UnexpectedError(
            f"{doing} failed with {type(error).__name__}: {in_one_line(error)}; this is a fault of pilotfish or of a "
            "library, please report it with the command and the model's config.json"
        ) from error


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether that is what an error, or one that it followed from, is about."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, MemoryError) or any(part in text for part in _NO_MEMORY):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False
