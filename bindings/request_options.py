"""RequestOptions -> pf_generate_options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .library import ffi, lib
from .masks import MaskCall

if TYPE_CHECKING:
    from .records import RequestOptions

_PLAIN = (
    "max_new_tokens",
    "num_draft_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "seed",
    "min_new_tokens",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "penalty_window",
    "no_repeat_ngram_size",
    "num_top_logprobs",
    "tree_nodes",
    "tree_depth",
    "typical_epsilon",
    "typical_delta",
)
_FLAGS = ("draft_source", "ignore_eos", "reuse_prefix", "echo")


class RequestStruct:
    """The C struct, and what it points to: keep it until the call that takes it returns."""

    def __init__(self, options: RequestOptions) -> None:
        """Copy the options."""
        self.pointer = ffi.new("pf_generate_options*")
        lib.pf_generate_options_init(self.pointer)
        for name in _PLAIN:
            setattr(self.pointer, name, getattr(options, name))
        for name in _FLAGS:
            setattr(self.pointer, name, int(getattr(options, name)))
        self._arrays: list[Any] = []
        self._point("stop_ids", "int32_t[]", list(options.stop_ids))
        self._point("tree_widths", "int32_t[]", list(options.tree_widths))
        self._point("tree_parents", "int32_t[]", list(options.tree_parents))
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
