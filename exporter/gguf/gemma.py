"""What files of Gemma 3n and 4 say in ways of their own: sizes by layer, sparse activations, partly rotated heads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

from .rope import FREQUENCY_FACTORS, ROPE_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .file import GgufFile

_FULL, _SLIDING = "full_attention", "sliding_attention"
_ROWS_BY_LAYER = "per_layer_token_embd.weight"
_UNROTATED = 1e29  # divisors of frequencies above it leave nothing of an angle
_BASE, _FULL_BASE, _LOCAL_BASE = "rope.freq_base", 1e6, 1e4
_NO_SCALING = (None, "none", 0, 1)
_DIGITS = 6  # to which a share of activations is stated


def _field(file: GgufFile, key: str, default: Any = None) -> Any:
    return file.fields.get(f"{file.architecture}.{key}", default)


def _by_layer(file: GgufFile, key: str, values: dict[str, Any], default: Any = None) -> list[Any]:
    """A field that is one number, or one a layer."""
    found = _field(file, key, default)
    count = values["num_hidden_layers"]
    numbers = found if isinstance(found, list) else [found] * count
    if len(numbers) != count:
        raise CheckpointError(f"{file.path} has {key} of {len(numbers)} layers; it has {count}")
    if any(isinstance(item, bool) or not isinstance(item, (int, float)) for item in numbers):
        raise CheckpointError(f"{file.path} has {key} = {found!r}; it must be a number, or one of each layer")
    return numbers


def _tensor_rows(file: GgufFile, name: str) -> int:
    if name not in file.tensors:
        raise CheckpointError(f"{file.path} has no tensor {name}; is the file complete?")
    return file.tensors[name].shape[0]


def _gemma3n(file: GgufFile, values: dict[str, Any]) -> dict[str, Any]:
    scales = _by_layer(file, "activation_sparsity_scale", values)
    shares = [round(0.5 * (1.0 + math.erf(scale / math.sqrt(2.0))), _DIGITS) for scale in scales]  # icdf's inverse
    return {
        **values,
        "activation_sparsity_pattern": shares,
        "laurel_rank": _tensor_rows(file, "blk.0.laurel_l.weight"),
        "vocab_size_per_layer_input": _tensor_rows(file, _ROWS_BY_LAYER),
    }


def _gemma4(file: GgufFile, values: dict[str, Any]) -> dict[str, Any]:
    kinds: list[str] = values["layer_types"]
    heads = _by_layer(file, "attention.head_count_kv", values, values["num_attention_heads"])
    sizes = {
        kind: _only(
            file, "attention.head_count_kv", [heads[layer] for layer, other in enumerate(kinds) if other == kind]
        )
        for kind in dict.fromkeys(kinds)
    }
    full_dim = int(_field(file, "attention.key_length", values["head_dim"]))
    head_dim = int(_field(file, "attention.key_length_swa", full_dim))
    if _field(file, "attention.value_length_swa", head_dim) != head_dim:
        raise UnsupportedModelError(f"{file.path} has keys and values of different sizes; they must have the same")
    if _field(file, "rope.dimension_count_swa", head_dim) != head_dim:
        rotated = _field(file, "rope.dimension_count_swa")
        raise UnsupportedModelError(f"{file.path} rotates {rotated} of {head_dim} dimensions; it must be {head_dim}")
    if _field(file, "rope.dimension_count", full_dim) != full_dim:
        rotated = _field(file, "rope.dimension_count")
        raise UnsupportedModelError(f"{file.path} rotates {rotated} of {full_dim} dimensions; it must be {full_dim}")
    scaled = next((key for key in ROPE_KEYS if key != _BASE and _field(file, key) not in _NO_SCALING), None)
    if scaled is not None:
        raise UnsupportedModelError(f"{file.path} has {scaled} = {_field(file, scaled)!r}, which no Gemma 4 has")
    overrides = {"head_dim": full_dim, "num_key_value_heads": sizes.get(_FULL)}
    full = [layer for layer, kind in enumerate(kinds) if kind == _FULL]
    found = {
        **values,
        "head_dim": head_dim,
        "num_key_value_heads": sizes.get(_SLIDING, sizes.get(_FULL)),
        "per_layer_config": dict.fromkeys(full, overrides),
        "attention_k_eq_v": bool(full) and f"blk.{full[0]}.attn_v.weight" not in file.tensors,
        **_feed_forward(file, values),
        "rope_parameters": {
            _FULL: _proportional(file, float(_field(file, _BASE, _FULL_BASE)), full_dim),
            _SLIDING: {"rope_type": "default", "rope_theta": float(_field(file, f"{_BASE}_swa", _LOCAL_BASE))},
        },
    }
    if values["hidden_size_per_layer_input"]:
        found["vocab_size_per_layer_input"] = _tensor_rows(file, _ROWS_BY_LAYER)
    return found


def _only(file: GgufFile, key: str, numbers: list[int]) -> int:
    """The one number that layers of a kind have."""
    if len(set(numbers)) != 1:
        raise UnsupportedModelError(f"{file.path} has layers of one kind with different {key}; they must have the same")
    return numbers[0]


def _feed_forward(file: GgufFile, values: dict[str, Any]) -> dict[str, Any]:
    """One size, of which layers that share caches have all, or all twice as much."""
    sizes = _by_layer(file, "feed_forward_length", values)
    num_shared = min(values["num_kv_shared_layers"], len(sizes) - 1)  # not all: refused with other configurations
    num_own, size = len(sizes) - num_shared, sizes[0]
    is_double = num_shared > 0 and sizes[-1] == 2 * size
    if sizes != [size] * num_own + [(1 + is_double) * size] * num_shared:
        raise UnsupportedModelError(
            f"{file.path} has feed_forward_length = {sizes}; supported is one size, or twice of it in layers that "
            "share caches"
        )
    return {"intermediate_size": size, "use_double_wide_mlp": is_double}


def _proportional(file: GgufFile, base: float, head_dim: int) -> dict[str, Any]:
    """The rotation of Gemma 4's full attention: all frequencies of a head, of which the last ones turn nothing."""
    if FREQUENCY_FACTORS not in file.tensors:
        raise CheckpointError(f"{file.path} has no tensor {FREQUENCY_FACTORS}; is the file complete?")
    divisors = file.tensors[FREQUENCY_FACTORS].values().reshape(-1)
    rotated = int((divisors == 1).sum())
    if len(divisors) != head_dim // 2 or not (
        (divisors[:rotated] == 1).all() and (divisors[rotated:] > _UNROTATED).all()
    ):
        raise UnsupportedModelError(
            f"{file.path} has {FREQUENCY_FACTORS} of {len(divisors)} numbers {divisors[:8]}...; of {head_dim // 2}, "
            "the first must be 1 and the others turn nothing"
        )
    return {"rope_type": "proportional", "rope_theta": base, "partial_rotary_factor": 2 * rotated / head_dim}


OWN_VALUES: dict[str, Callable[[GgufFile, dict[str, Any]], dict[str, Any]]] = {"gemma3n": _gemma3n, "gemma4": _gemma4}
