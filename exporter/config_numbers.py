"""Whether a model can compute with the numbers that its configuration states.

Sizes are checked by `config_check`, and shapes that follow from them by `checkpoint_check`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PretrainedConfig

_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
_ABOVE_ZERO = (
    *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "logits_scaling", "clip_qkv"),
)
_ROPE_ABOVE_ZERO = ("rope_theta", "factor", "original_max_position_embeddings", "alpha")
_ROTATED = "partial_rotary_factor"


def check_numbers(config: PretrainedConfig, where: str) -> None:
    """Refuses numbers outside the range that a model's arithmetic has; those that are not stated are none.

    Raises:
        CheckpointError: naming the key and its value.
    """
    for part in (config, getattr(config, "attn_config", None)):
        for name in _EPSILONS:
            value = getattr(part, name, None)
            if value is not None and (not _is_number(value) or not 0 < value < 1):
                raise CheckpointError(f"{where} has {name} = {value!r}; it must lie between 0 and 1")
        for name in _ABOVE_ZERO:
            value = getattr(part, name, None)
            if value is not None and (not _is_number(value) or value <= 0):
                raise CheckpointError(f"{where} has {name} = {value!r}; it must be above 0")
    for parameters in _rope_parameters(config):
        _check_rope(parameters, config, where)
    _check_rotary_dim(config, where)
    _check_streams(config, where)


def _rope_parameters(config: PretrainedConfig) -> Iterator[dict[str, Any]]:
    """Those of all layers, and those of each kind of layer."""
    parameters = getattr(config, "rope_parameters", None)
    if isinstance(parameters, dict):
        yield parameters
        yield from (item for item in parameters.values() if isinstance(item, dict))


def _check_rope(parameters: dict[str, Any], config: PretrainedConfig, where: str) -> None:
    for name in _ROPE_ABOVE_ZERO:
        value = parameters.get(name)
        if value is not None and (not _is_number(value) or value <= 0):
            raise CheckpointError(f"{where} has {name} = {value!r} in its rope parameters; it must be above 0")
    share, head_dim = parameters.get(_ROTATED), _head_dim(config)
    if share is None:
        return
    if not _is_number(share) or not 0 < share <= 1:
        raise CheckpointError(f"{where} has {_ROTATED} = {share!r}; it must be above 0 and at most 1")
    columns = int(head_dim * share)
    if head_dim and parameters.get("rope_type") != "proportional" and (columns < 2 or columns % 2):  # noqa: PLR2004
        raise CheckpointError(
            f"{where} has {_ROTATED} = {share!r}, which rotates {columns} of {head_dim} columns of a head; it must be "
            "an even number of them"
        )


def _head_dim(config: PretrainedConfig) -> int:
    """Columns of a head; 0: layers have heads of different sizes."""
    if "head_dim" in (getattr(config, "per_layer_attributes", None) or ()):
        return 0
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _check_rotary_dim(config: PretrainedConfig, where: str) -> None:
    columns = getattr(config, "rotary_dim", None)
    if columns is not None and (not isinstance(columns, int) or columns % 2 or not 0 < columns <= _head_dim(config)):
        raise CheckpointError(
            f"{where} has rotary_dim = {columns!r}; it must be an even number in 2..{_head_dim(config)}, a head's size"
        )


def _check_streams(config: PretrainedConfig, where: str) -> None:
    """Of Gemma 3n."""
    shares = getattr(config, "activation_sparsity_pattern", None)
    for share in shares if isinstance(shares, (list, tuple)) else ():
        if not _is_number(share) or not 0 <= share < 1:
            raise CheckpointError(
                f"{where} has activation_sparsity_pattern = {shares!r}; each must lie in 0..1, below 1"
            )
    count, active = getattr(config, "altup_num_inputs", None), getattr(config, "altup_active_idx", None)
    if count is not None and active is not None and not 0 <= active < count:
        raise CheckpointError(f"{where} has altup_active_idx = {active!r}; it must be in 0..{count - 1}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
