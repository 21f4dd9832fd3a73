"""How a GGUF file scales its rotary frequencies, as transformers' rope_parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.errors import UnsupportedModelError

if TYPE_CHECKING:
    from .file import GgufFile

Array = np.ndarray[Any, np.dtype[Any]]
FREQUENCY_FACTORS = "rope_freqs.weight"
_CHOSEN_BY_LENGTH = ("rope_factors_long.weight", "rope_factors_short.weight")
_DEFAULT_BASE = 10000.0
_LOW, _HIGH = 1.0, 4.0  # wavelengths in an original context, between which Llama 3 goes from one factor to the other
_CONTEXTS = tuple(1 << power for power in range(5, 18))  # that Llama 3's factors may have been made for


def rope_parameters(file: GgufFile, rotary_dim: int) -> dict[str, Any]:
    """rope_theta, rope_type and what the type needs.

    Raises:
        UnsupportedModelError: frequencies that depend on the length of the context, or factors of an unknown kind.
    """
    prefix = f"{file.architecture}.rope"
    base = float(file.fields.get(f"{prefix}.freq_base", _DEFAULT_BASE))
    for name in _CHOSEN_BY_LENGTH:
        if name in file.tensors:
            raise UnsupportedModelError(f"{file.path} has {name}: frequencies that change with the length")
    scaling = _scaling(file, f"{prefix}.scaling")
    if FREQUENCY_FACTORS in file.tensors:
        if scaling["rope_type"] != "default":
            kind = scaling["rope_type"]
            raise UnsupportedModelError(f"{file.path} has {FREQUENCY_FACTORS} and {kind} rope scaling; one is known")
        factors = file.tensors[FREQUENCY_FACTORS].values().reshape(-1)
        scaling = _llama3(file, factors, base, rotary_dim)
    return {"rope_theta": base, **scaling}


def _scaling(file: GgufFile, prefix: str) -> dict[str, Any]:
    fields = file.fields
    kind = fields.get(f"{prefix}.type", "none")
    factor = float(fields.get(f"{prefix}.factor", 0.0))
    if f"{file.architecture}.rope.scale_linear" in fields:  # as files of 2023 say it
        kind, factor = "linear", float(fields[f"{file.architecture}.rope.scale_linear"])
    if kind == "none" or factor in (0.0, 1.0):
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise UnsupportedModelError(f"{file.path} has rope scaling {kind!r}; supported are none, linear and yarn")
    original = int(file.field(f"{prefix}.original_context_length"))
    stated = {
        "attention_factor": fields.get(f"{prefix}.attn_factor", 1.0) * (1.0 + 0.1 * math.log(factor)),
        "beta_fast": fields.get(f"{prefix}.yarn_beta_fast", 32.0),
        "beta_slow": fields.get(f"{prefix}.yarn_beta_slow", 1.0),
    }
    for key in ("yarn_log_multiplier", "yarn_attn_factor", "yarn_ext_factor"):
        if fields.get(f"{prefix}.{key}", 1.0) != 1.0:
            raise UnsupportedModelError(f"{file.path} has {prefix}.{key} {fields[f'{prefix}.{key}']}; supported is 1")
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, **stated}


def _llama3(file: GgufFile, factors: Array, base: float, rotary_dim: int) -> dict[str, Any]:
    """The parameters that give these divisors of the frequencies."""
    if factors.size != rotary_dim // 2:
        raise UnsupportedModelError(f"{file.path} has {factors.size} rope factors for {rotary_dim // 2} frequencies")
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
