"""What chat and text completions have in common: the fields of a request that become the engine's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilotfish.bindings import limits
from pilotfish.runtime.options import GenerateKeywords

from .errors import invalid
from .fields import Fields

MOST_CHOICES = 128
DEFAULT_TEMPERATURE = 1.0  # the protocol's
_LEAST_SEED, _MOST_SEED = -(2**63), 2**64 - 1
# What the protocol has under another name, with another default or in other words, or what is not a client's to choose.
_NOT_BY_NAME = frozenset(
    (
        *("max_new_tokens", "temperature", "stop", "seed", "logit_bias", "logprobs", "echo", "json_schema"),
        *("reuse_prefix", "explain", "typical_acceptance"),
    )
)
# The engine's options under their own names, which it checks; some are the protocol's too.
OPTIONS = tuple(name for name in GenerateKeywords.__annotations__ if name not in _NOT_BY_NAME)
# Fields of the protocol that have no meaning on a machine of one's own; the answer's header says that they were there.
IGNORED = frozenset(
    (
        *("user", "safety_identifier", "metadata", "store", "service_tier", "prompt_cache_key"),
        *("prompt_cache_retention", "verbosity", "reasoning_effort", "prediction"),
    )
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's fields that both kinds have."""

    model: str | None
    options: dict[str, Any]
    """Of Engine.generate."""
    num_choices: int
    is_streamed: bool
    includes_usage: bool
    shows_origins: bool
    ignored: tuple[str, ...] = ()
    """Fields of the request that change nothing."""


def common_fields(fields: Fields, *, default_tokens: int, length_names: tuple[str, ...]) -> Asked:
    """Take them. ``length_names`` are the fields that may bound the answer's length, the first one that is there does.

    Raises:
        ApiError: a value of the wrong type, or outside the protocol's range.
    """
    lengths = [fields.integer(name, 1, limits.MOST_CONTEXT) for name in length_names]
    options: dict[str, Any] = {name: value for name in OPTIONS if (value := fields.take(name)) is not None}
    temperature = fields.take("temperature")
    stop = fields.take("stop")
    is_streamed = fields.flag("stream")
    streaming = fields.mapping("stream_options")
    if streaming is not None and not is_streamed:
        raise invalid("stream_options are given, but stream is not true", param="stream_options")
    return Asked(
        model=fields.text("model"),
        options={
            **options,
            "max_new_tokens": next((each for each in lengths if each is not None), default_tokens),
            "temperature": DEFAULT_TEMPERATURE if temperature is None else temperature,
            "stop": () if stop is None else stop,
            "seed": _seed(fields),
            "logit_bias": _logit_bias(fields),
        },
        num_choices=fields.integer("n", 1, MOST_CHOICES) or 1,
        is_streamed=is_streamed,
        includes_usage=_includes_usage(streaming),
        shows_origins=fields.flag("token_origins"),
    )


def _includes_usage(streaming: dict[str, Any] | None) -> bool:
    options = Fields(streaming or {}, "stream_options")
    includes_usage = options.flag("include_usage")
    options.flag("include_obfuscation")  # padding against eavesdroppers of an encrypted line: there is none
    options.finish()
    return includes_usage


def _seed(fields: Fields) -> int | None:
    """The protocol's seeds may be below zero, the engine's may not."""
    seed = fields.integer("seed", _LEAST_SEED, _MOST_SEED)
    return None if seed is None else seed % 2**64


def _logit_bias(fields: Fields) -> dict[int, Any]:
    biases = fields.mapping("logit_bias") or {}
    for name in biases:
        if not (name.isascii() and name.isdecimal()):
            raise invalid(f"logit_bias has the key {name!r:.60}, must have token ids as keys", param="logit_bias")
    return {int(name): bias for name, bias in biases.items()}
