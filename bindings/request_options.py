"""RequestOptions -> pf_generate_options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .library import ffi, lib
from .masks import MaskCall

if TYPE_CHECKING:
    from .records import RequestOptions

_KINDS = {
    name: float if field.type.cname in ("float", "double") else int
    for name, field in ffi.typeof("pf_generate_options").fields
    if field.type.kind == "primitive"
}


class RequestStruct:
    """The C struct, and what it points to: keep it until the call that takes it returns."""

    def __init__(self, options: RequestOptions) -> None:
        """Copy the options."""
        self.pointer = ffi.new("pf_generate_options*")
        lib.pf_generate_options_init(self.pointer)
        for name, value in options.numbers.items():
            setattr(self.pointer, name, _KINDS[name](value))
        self._arrays: list[Any] = []
        self._point("stop_ids", "int32_t[]", list(options.stop_ids))
        self._point("logit_bias", "pf_logit_bias[]", [tuple(pair) for pair in options.logit_bias])
        self.mask = None if options.mask is None else MaskCall(options.mask)
        """Must live as long as the request."""
        if self.mask is not None:
            self.pointer.mask = self.mask.callback
            self.pointer.mask_user = self.mask.handle

    def _point(self, name: str, kind: str, values: list[Any]) -> None:
        array = ffi.new(kind, values)
        self._arrays.append(array)
        setattr(self.pointer, name, array)
        setattr(self.pointer, f"num_{name}", len(values))
