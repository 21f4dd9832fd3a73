"""The layout of the library "speculators" (RedHatAI's releases), read as the EAGLE-3 layout, of which it is a variant.

The sizes of the decoder layer are a configuration of their own in `transformer_layer_config`, the layer's tensors begin
with "layers.0.", taps have this exporter's numbers already, and flags say where norms are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

if TYPE_CHECKING:
    import torch

LAYER = "transformer_layer_config"
NORMED_RESIDUAL = "norm_before_residual"  # the residual stream around the attention is the normed state
_MARKS = ("speculators_model_type", "speculators_config", LAYER)
_FLAGS = ("norm_before_fc", "fc_norm", "norm_output")  # further norms
_LAYERS = ("llama", "qwen3")
_TAKEN = ("draft_vocab_size", "eagle_aux_hidden_state_layer_ids", "target_hidden_size", NORMED_RESIDUAL)


def is_speculators(config: dict[str, Any]) -> bool:
    """Whether a head's config.json is of this layout."""
    return any(config.get(mark) is not None for mark in _MARKS)


def as_eagle3(
    config: dict[str, Any], tensors: dict[str, torch.Tensor], where: str
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Configuration and tensors in the EAGLE-3 layout.

    Raises:
        CheckpointError: no configuration of its layer.
        UnsupportedModelError: another kind of head, or a variant of this one; names it.
    """
    kind = config.get("speculators_model_type")
    if kind != "eagle3":
        raise UnsupportedModelError(
            f"{where} is a {kind!r} head in the speculators layout; of that layout EAGLE-3 heads are supported"
        )
    layer = config.get(LAYER)
    if not isinstance(layer, dict):
        raise CheckpointError(f"{where}: config.json has {LAYER} = {layer!r}; it must describe the decoder layer")
    if layer.get("model_type") not in _LAYERS:
        raise UnsupportedModelError(
            f"{where} has a decoder layer of {layer.get('model_type')!r}; of this layout llama and qwen3 are supported"
        )
    for flag in _FLAGS:
        if config.get(flag):
            raise UnsupportedModelError(f"{where} has {flag} = {config[flag]!r}, a norm that is not supported")
    if not isinstance(config.get(NORMED_RESIDUAL, False), bool):
        raise CheckpointError(
            f"{where}: config.json has {NORMED_RESIDUAL} = {config[NORMED_RESIDUAL]!r}, expected a bool"
        )
    if _has_window(layer):
        raise UnsupportedModelError(
            f"{where} has sliding_window = {layer['sliding_window']!r} in its layer; that is not supported"
        )
    taken = {name: config[name] for name in _TAKEN if config.get(name) is not None}
    renamed = {
        f"midlayer.{name.removeprefix('layers.0.')}" if name.startswith("layers.0.") else name: tensor
        for name, tensor in tensors.items()
    }
    return {**layer, "architectures": ["Eagle3Speculator"], **taken}, renamed


def _has_window(layer: dict[str, Any]) -> bool:
    kinds = layer.get("layer_types")
    slides = layer.get("use_sliding_window", True) if kinds is None else "sliding_attention" in kinds
    return bool(layer.get("sliding_window") and slides)
