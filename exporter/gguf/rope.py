"""How a GGUF file scales its rotary frequencies, as transformers' rope_parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

if TYPE_CHECKING:
    from .file import GgufFile

Array = np.ndarray[Any, np.dtype[Any]]
FREQUENCY_FACTORS = "rope_freqs.weight"
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"  # above the length of training, and below
ROPE_TENSORS = (FREQUENCY_FACTORS, _LONG, _SHORT)  # which the configuration is made of
_SCALING = "rope.scaling."
_LONGROPE = "longrope"
ROPE_KEYS = (
    *("rope.freq_base", "rope.scale_linear", f"{_SCALING}type", f"{_SCALING}factor", f"{_SCALING}attn_factor"),
    *(f"{_SCALING}original_context_length", f"{_SCALING}finetuned", f"{_SCALING}yarn_beta_fast"),
    *(f"{_SCALING}yarn_beta_slow", f"{_SCALING}yarn_log_multiplier", f"{_SCALING}yarn_attn_factor"),
    f"{_SCALING}yarn_ext_factor",
)
_DEFAULT_BASE = 10000.0
_LOW, _HIGH = 1.0, 4.0  # wavelengths in an original context, between which Llama 3 goes from one factor to the other
_CONTEXTS = tuple(1 << power for power in range(5, 18))  # that Llama 3's factors may have been made for


def rope_parameters(file: GgufFile, rotary_dim: int) -> dict[str, Any]:
    """rope_theta, rope_type and what the type needs.

    Raises:
        UnsupportedModelError: two kinds of scaling at once, or factors of an unknown kind.
    """
    prefix = f"{file.architecture}.rope"
    base = float(file.fields.get(f"{prefix}.freq_base", _DEFAULT_BASE))
    scaling = _scaling(file, f"{prefix}.scaling")
    given = [name for name in ROPE_TENSORS if name in file.tensors]
    if given and (scaling["rope_type"] != "default" or (FREQUENCY_FACTORS in given and len(given) > 1)):
        kinds = ", ".join([*given, scaling["rope_type"]])
        raise UnsupportedModelError(f"{file.path} has {kinds} rope scaling; one kind is known")
    if FREQUENCY_FACTORS in given:
        factors = file.tensors[FREQUENCY_FACTORS].values().reshape(-1)
        scaling = _llama3(file, factors, base, rotary_dim)
    elif given:
        scaling = _longrope(file, f"{prefix}.scaling", rotary_dim)
    magnitude = file.fields.get(f"{prefix}.scaling.attn_factor", 1.0)
    if magnitude != 1.0 and "attention_factor" not in scaling:
        kind = scaling["rope_type"]
        raise UnsupportedModelError(
            f"{file.path} has {prefix}.scaling.attn_factor {magnitude} with {kind} rope scaling"
        )
    return {"rope_theta": base, **scaling}


def _scaling(file: GgufFile, prefix: str) -> dict[str, Any]:
    fields = file.fields
    kind = fields.get(f"{prefix}.type", "linear")
    old = fields.get(f"{file.architecture}.rope.scale_linear", 0.0)  # as files of 2023 say it
    factor = float(fields.get(f"{prefix}.factor", old))
    has_no_factor = factor in (0.0, 1.0)
    if kind == "none" or (has_no_factor and (kind != _LONGROPE or _LONG in file.tensors)):
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise UnsupportedModelError(
            f"{file.path} has rope scaling {kind!r}; supported are none, linear and yarn, and longrope with its factors"
        )
    return {"rope_type": "yarn", "factor": factor, **_yarn(file, prefix, factor)}


def _yarn(file: GgufFile, prefix: str, factor: float) -> dict[str, Any]:
    fields = file.fields
    divisor = 1.0 + 0.1 * fields.get(f"{prefix}.yarn_log_multiplier", 0.0) * math.log(factor)
    magnitude = fields.get(f"{prefix}.attn_factor", 1.0) * (1.0 + 0.1 * math.log(factor)) / divisor
    for key, same in (("yarn_attn_factor", magnitude), ("yarn_ext_factor", 1.0)):
        stated = fields.get(f"{prefix}.{key}", 1.0)  # 1: nothing is said
        if stated != 1.0 and not math.isclose(stated, same, rel_tol=1e-4):
            raise UnsupportedModelError(f"{file.path} has {prefix}.{key} {stated}; supported is {same:.4g}")
    return {
        "original_max_position_embeddings": int(file.field(f"{prefix}.original_context_length")),
        "attention_factor": magnitude,
        "beta_fast": fields.get(f"{prefix}.yarn_beta_fast", 32.0),
        "beta_slow": fields.get(f"{prefix}.yarn_beta_slow", 1.0),
    }


def _longrope(file: GgufFile, prefix: str, rotary_dim: int) -> dict[str, Any]:
    """Two sets of divisors of the frequencies."""
    factors = {}
    for key, name in (("long_factor", _LONG), ("short_factor", _SHORT)):
        if name not in file.tensors:
            raise CheckpointError(f"{file.path} has no tensor {name}; is the file complete?")
        factors[key] = file.tensors[name].values().reshape(-1).tolist()
        _check_count(file, name, len(factors[key]), rotary_dim)
    original = int(file.field(f"{prefix}.original_context_length"))
    return {
        "rope_type": _LONGROPE,
        "factor": int(file.field(f"{file.architecture}.context_length")) / original,
        "original_max_position_embeddings": original,
        "attention_factor": float(file.fields.get(f"{prefix}.attn_factor", 1.0)),
        **factors,
    }


def _check_count(file: GgufFile, name: str, count: int, rotary_dim: int) -> None:
    if count != rotary_dim // 2:
        raise UnsupportedModelError(
            f"{file.path} has {count} rope factors for {rotary_dim // 2} frequencies in {name}; they must be as many"
        )


def _llama3(file: GgufFile, factors: Array, base: float, rotary_dim: int) -> dict[str, Any]:
    """The parameters that give these divisors of the frequencies."""
    _check_count(file, FREQUENCY_FACTORS, factors.size, rotary_dim)
    if np.all(factors == 1):
        return {"rope_type": "default"}
    factor = float(factors.max())
    wavelengths = 2 * math.pi * base ** (np.arange(0, rotary_dim, 2) / rotary_dim)
    for context in _CONTEXTS:
        if np.allclose(llama3_factors(wavelengths, factor, context), factors, rtol=1e-5):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": _LOW,
                "high_freq_factor": _HIGH,
                "original_max_position_embeddings": context,
            }
    raise UnsupportedModelError(f"{file.path} has {FREQUENCY_FACTORS} that are not Llama 3's: {factors[:8]}...")


def llama3_factors(wavelengths: Array, factor: float, context: int) -> Array:
    """What Llama 3 divides its frequencies by: 1 for short waves, `factor` for long ones, a mixture between."""
    smooth = np.clip((context / wavelengths - _LOW) / (_HIGH - _LOW), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - smooth) / factor + smooth))
