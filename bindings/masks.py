"""A Python function behind pf_mask_callback."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ._ffi import ffi, lib
from .handle import begin_mask_call, end_mask_call

if TYPE_CHECKING:
    from .records import Mask

_WORD_BITS = 32


class _NoCollector:
    """Keeps the collector off while any thread is in here, and the last one turns it on again.

    It might drop a stream of another engine, whose thread in turn waits for this one's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if self._num_inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._num_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0 and self._was_on:
                gc.enable()


_NO_COLLECTOR = _NoCollector()


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
            begin_mask_call()
            with _NO_COLLECTOR:
                self._mask.fill(ffi.unpack(path, num_path) if num_path else [], words)
        except BaseException as error:  # noqa: BLE001 - nothing may pass through the C frames; request_step raises it
            self.error = error
            return 1
        finally:
            end_mask_call()
        return 0


def _answer(user: Any, path: Any, num_path: int, mask_out: Any) -> int:
    call: MaskCall = ffi.from_handle(user)
    return call.answer(path, num_path, mask_out)


ffi.def_extern(name="pf_python_mask", error=1)(_answer)
