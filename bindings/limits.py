"""Limits and defaults of options, as pilotfish.h and its _init functions have them. Python has no others."""

from __future__ import annotations

from typing import NamedTuple, TypeVar, get_type_hints

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


class EngineDefaults(NamedTuple):
    """What pf_engine_options_init sets, as far as Python spells it."""

    max_draft_tokens: int
    num_sequences: int
    calibration: int
    acceptance: int


class GenerateDefaults(NamedTuple):
    """What pf_generate_options_init sets, as far as Python spells it."""

    max_new_tokens: int
    min_new_tokens: int
    ignore_eos: bool
    reuse_prefix: bool
    echo: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    no_repeat_ngram_size: int
    num_top_logprobs: int


Defaults = TypeVar("Defaults", EngineDefaults, GenerateDefaults)


def _defaults(kind: type[Defaults], struct: str) -> Defaults:
    pointer = ffi.new(f"{struct}*")
    getattr(lib, f"{struct}_init")(pointer)
    return kind(**{name: of(getattr(pointer, name)) for name, of in get_type_hints(kind).items()})


ENGINE = _defaults(EngineDefaults, "pf_engine_options")
GENERATE = _defaults(GenerateDefaults, "pf_generate_options")
