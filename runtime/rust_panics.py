"""Libraries written in Rust raise what is no Exception when they meet a bug of their own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pilotfish.bindings import PilotfishError


@contextlib.contextmanager
def panics_as(kind: type[PilotfishError], what: str) -> Iterator[None]:
    """Raise ``kind``, which says ``what`` could not be done, in place of a PanicException."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise kind(f"{what}: {' '.join(str(error).split())[:200]}") from error
