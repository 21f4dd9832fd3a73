"""A Python function behind pf_mask_callback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .library import ffi, lib

if TYPE_CHECKING:
    from .records import Mask

_WORD_BITS = 32


class MaskCall:
    """What the C side is given as user data: it must live as long as the request."""

    def __init__(self, mask: Mask) -> None:
        """Answer calls with ``mask``."""
        self._mask = mask
        self.handle = ffi.new_handle(self)
        self.callback = lib.pf_python_mask
        self.error: BaseException | None = None
        """What the function raised."""

    def answer(self, path: Any, num_path: int, mask_out: Any) -> int:
        """Fill the words, or keep the exception and report a failure."""
        num_words = (self._mask.num_ids + _WORD_BITS - 1) // _WORD_BITS
        words = np.frombuffer(ffi.buffer(mask_out, num_words * np.uint32().itemsize), dtype=np.uint32)
        try:
            self._mask.fill(ffi.unpack(path, num_path) if num_path else [], words)
        except BaseException as error:  # noqa: BLE001 - nothing may pass through the C frames; request_step raises it
            self.error = error
            return 1
        return 0


def _answer(user: Any, path: Any, num_path: int, mask_out: Any) -> int:
    call: MaskCall = ffi.from_handle(user)
    return call.answer(path, num_path, mask_out)


ffi.def_extern(name="pf_python_mask", error=1)(_answer)
