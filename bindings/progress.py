"""A Python function behind pf_progress_callback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .library import ffi, lib
from .records import LoadStage

if TYPE_CHECKING:
    from .records import Progress


class ProgressCall:
    """What the C side is given as user data: it must live as long as the load."""

    def __init__(self, progress: Progress) -> None:
        """Answer calls with ``progress``."""
        self._progress = progress
        self.handle = ffi.new_handle(self)
        self.callback = lib.pf_python_progress
        self.error: BaseException | None = None
        """What the function raised."""

    def answer(self, stage: int, done: int, total: int) -> int:
        """Hand on, or keep the exception and end the load."""
        try:
            self._progress(LoadStage(stage), done, total)
        except BaseException as error:  # noqa: BLE001 - nothing may pass through the C frames; engine_open raises it
            self.error = error
            return 1
        return 0


def _answer(user: Any, stage: int, done: int, total: int) -> int:
    call: ProgressCall = ffi.from_handle(user)
    return call.answer(stage, done, total)


ffi.def_extern(name="pf_python_progress", error=1)(_answer)
