"""Limits and defaults of options, as pilotfish.h and its _init functions have them. Python has no others."""

from __future__ import annotations

from types import SimpleNamespace

from .library import ffi, lib

AS_MANY_AS_PAY: int = lib.PF_AS_MANY_AS_PAY
MOST_THREADS: int = lib.PF_MOST_THREADS
MOST_DEVICE_INDEX: int = lib.PF_MOST_DEVICE_INDEX
MOST_CONTEXT: int = lib.PF_MOST_CONTEXT
MOST_PREFILL_CHUNK: int = lib.PF_MOST_PREFILL_CHUNK
MOST_SEQUENCES: int = lib.PF_MOST_SEQUENCES
MOST_TOGETHER: int = lib.PF_MOST_TOGETHER
MOST_DRAFT_TOKENS: int = lib.PF_MOST_DRAFT_TOKENS
DEFAULT_TREE_DEPTH: int = lib.PF_DEFAULT_TREE_DEPTH
LEAST_DRAFT_WINDOW: int = lib.PF_LEAST_DRAFT_WINDOW
LEAST_LOOKUP_STORE_BYTES: int = lib.PF_LEAST_LOOKUP_STORE_BYTES
MOST_LOOKUP_STORE_BYTES: int = lib.PF_MOST_LOOKUP_STORE_BYTES
LEAST_TEMPERATURE: float = lib.PF_LEAST_TEMPERATURE
MOST_TEMPERATURE: int = lib.PF_MOST_TEMPERATURE
MOST_PENALTY: int = lib.PF_MOST_PENALTY
MOST_TOP_LOGPROBS: int = lib.PF_MOST_TOP_LOGPROBS
MOST_WAIT_MS: int = lib.PF_MOST_WAIT_MS
MOST_SESSION_NOTE: int = lib.PF_MOST_SESSION_NOTE


def _defaults(struct: str) -> SimpleNamespace:
    """The struct's numbers by name, as its _init function leaves them."""
    pointer = ffi.new(f"{struct}*")
    getattr(lib, f"{struct}_init")(pointer)
    numbers = (name for name, field in ffi.typeof(struct).fields if field.type.kind == "primitive")
    return SimpleNamespace(**{name: getattr(pointer, name) for name in numbers})


ENGINE = _defaults("pf_engine_options")
GENERATE = _defaults("pf_generate_options")
