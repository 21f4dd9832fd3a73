"""Whether a configuration describes a decoder whose layers the exporter can express, before anything is traced.

Every refusal names the property of the model, as its configuration has it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from . import own_attention
from .config_check import POSITIONS, size_of
from .errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from transformers import PretrainedConfig

# Text parts that transformers has no language model of their own for, and the one that computes the same for text.
_SAME_FOR_TEXT = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3"}
_ONLY_OF_IMAGES = ("mrope_section", "mrope_interleaved")  # in rope parameters: a text's three positions are one
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")
_RECURRENT_LAYERS = (
    *("linear_attention", "recurrent", "mamba", "mamba2", "conv", "ssm", "hybrid", "hybrid_sliding", "rwkv"),
)
_LAYER_KINDS = ("layer_types", "layers_block_type", "block_types", "attn_layer_indices")
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
_MAMBA = "Mamba layers"  # a model that may have some states their sizes where it has none, too
_RECURRENT_KEYS = {
    "state_size": "states of a recurrence",
    "ssm_state_size": "states of a recurrence",
    "mamba_d_state": _MAMBA,
    "mamba_d_ssm": _MAMBA,
    "conv_L_cache": "convolutions",
    "lru_width": "recurrent layers",
    "linear_num_key_heads": "linear attention",
    "attention_hidden_size": "a recurrence in place of attention",
}
_SIZES_BY_LAYER = {"gemma4_text": {"head_dim", "num_key_value_heads"}}  # of models whose own code makes them so
_DONE_BY_MPT = {
    "attn_type": "multihead_attention",
    "alibi": True,
    "alibi_bias_max": 8,
    "qk_ln": False,
    "prefix_lm": False,
    "attn_uses_sequence_id": False,
}
_ENCODERS = ("bert", "electra", "big_bird", "roformer", "xlm-", "xmod", "data2vec")
_NO_LIMIT = 1 << 15  # positions of a model whose configuration states none because it needs no table of them


def text_config(config: PretrainedConfig, where: str) -> PretrainedConfig:
    """The configuration of the language model in one of several parts; the same one where it is alone.

    Of a text part without a class of its own, the whole may tie the output layer: those configurations are flat.

    Raises:
        UnsupportedModelError: an encoder-decoder.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{where} is a {config.model_type!r} model, not a causal language model: it is an encoder-decoder, and "
            "decoders are supported"
        )
    text = getattr(config, "text_config", None)
    if text is None or not hasattr(text, "model_type"):
        return config
    kind = _SAME_FOR_TEXT.get(text.model_type)
    if kind is None:
        found: PretrainedConfig = text
        return found
    values = {key: value for key, value in text.to_dict().items() if key not in ("model_type", "architectures")}
    values["tie_word_embeddings"] = any(getattr(part, "tie_word_embeddings", False) for part in (config, text))
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(values.get(name), dict):
            values[name] = {key: item for key, item in values[name].items() if key not in _ONLY_OF_IMAGES}
            if values[name].get("rope_type", values[name].get("type")) == "mrope":
                values[name] = {**values[name], "rope_type": "default"}
    same: PretrainedConfig = CONFIG_MAPPING[kind](**values)
    return same


def fill_names(config: PretrainedConfig) -> None:
    """Gives a configuration the names that the exporter reads, where it has others for the same."""
    if getattr(config, "max_position_embeddings", None) is None:
        stated = next((value for name in POSITIONS if (value := getattr(config, name, None)) is not None), None)
        config.max_position_embeddings = stated if stated is not None else _NO_LIMIT


def check_supported(config: PretrainedConfig, where: str) -> None:
    """Refuses what no graph of a bundle can express.

    Raises:
        UnsupportedModelError: naming the property.
    """
    for check in _CHECKS:
        reason = check(config)
        if reason is not None:
            raise UnsupportedModelError(f"{where} ({config.model_type}) {reason}")


def _sizes_by_layer(config: PretrainedConfig) -> str | None:
    """First of all: transformers raises where such a value is read of the whole."""
    names = getattr(config, "per_layer_attributes", None)
    if not names or _SIZES_BY_LAYER.get(config.model_type, set()).issuperset(names):
        return None
    stated = ", ".join(sorted(names))
    return f"states sizes for single layers ({stated} in per_layer_config); one for all layers is supported"


def _experts(config: PretrainedConfig) -> str | None:
    for name in _LAYER_KINDS:
        if "moe" in _names(getattr(config, name, None)):
            return f"is a mixture of experts ('moe' layers in {name}); models whose layers are dense are supported"
    for name in _EXPERTS:
        value = getattr(config, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 1 and _uses_experts(config):
            return f"is a mixture of experts ({name} = {value}); models whose layers are dense are supported"
    return None


def _uses_experts(config: PretrainedConfig) -> bool:
    return getattr(config, "enable_moe_block", True) is not False


def _recurrence(config: PretrainedConfig) -> str | None:
    for name in _LAYER_KINDS:
        found = next((kind for kind in _names(getattr(config, name, None)) if kind in _RECURRENT_LAYERS), None)
        if found is not None:
            return f"has {found!r} layers ({name}), which keep a state that is no cache of keys; they are not supported"
    kinds = _names(getattr(config, "layer_types", None))
    has_attention_alone = bool(kinds) and _ATTENTION_LAYERS.issuperset(kinds)
    for name, meaning in _RECURRENT_KEYS.items():
        if meaning == _MAMBA and has_attention_alone:
            continue
        value = getattr(config, name, None)
        if value and (name != "attention_hidden_size" or config.model_type == "rwkv"):
            return f"has {meaning} ({name} = {value}); layers of attention alone are supported"
    return None


def _other_layers(config: PretrainedConfig) -> str | None:
    found = next((kind for kind in _names(getattr(config, "layer_types", None)) if kind not in _ATTENTION_LAYERS), None)
    return found and f"has {found!r} layers (layer_types); those of full and of sliding attention are supported"


def _names(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []


def _direction(config: PretrainedConfig) -> str | None:
    if getattr(config, "add_cross_attention", False):
        return "reads another sequence (add_cross_attention is true); plain decoders are supported"
    both = getattr(config, "use_bidirectional_attention", None)
    if both not in (None, False, "vision"):  # images alone are seen in both directions: text stays causal
        return f"attends in both directions (use_bidirectional_attention = {both}); causal attention is supported"
    is_encoder = any(name in config.model_type for name in _ENCODERS) and not getattr(config, "is_decoder", False)
    return "is an encoder (is_decoder is false); decoders are supported" if is_encoder else None


def _sharing(config: PretrainedConfig) -> str | None:
    shared, count = getattr(config, "num_kv_shared_layers", None), getattr(config, "num_hidden_layers", None)
    if isinstance(shared, int) and isinstance(count, int) and shared >= count > 0:
        return (
            f"uses the keys and values of another model in all layers (num_kv_shared_layers = {shared}); not supported"
        )
    return None


def _head_sizes(config: PretrainedConfig) -> str | None:
    latent = getattr(config, "kv_lora_rank", None)
    if latent:
        return f"has latent attention (kv_lora_rank = {latent}); keys and values of their own are supported"
    largest = size_of(config, "head_dim") or (
        config.hidden_size // config.num_attention_heads if _has_sizes(config) else 0
    )
    if isinstance(largest, int) and largest > MOST_HEAD_DIM:
        return f"has heads of {largest} columns; at most {MOST_HEAD_DIM} are supported"
    return None


def _has_sizes(config: Any) -> bool:
    sizes = (getattr(config, "hidden_size", None), getattr(config, "num_attention_heads", None))
    return all(isinstance(size, int) and size > 0 for size in sizes)


def _biased_positions(config: PretrainedConfig) -> str | None:
    if config.model_type == "mpt":
        return _mpt(config)
    if getattr(config, "alibi", False) is True and config.model_type not in own_attention.MODEL_TYPES:
        return (
            "adds a bias by distance to its attention scores (alibi is true); of biases by distance (ALiBi), those of "
            "Bloom, Falcon and MPT are supported"
        )
    return None


def _mpt(config: PretrainedConfig) -> str | None:
    """What a configuration of MPT may say and transformers' code does not do."""
    attention: Any = getattr(config, "attn_config", None)
    for name, done in _DONE_BY_MPT.items():
        value = getattr(attention, name, done)
        if value != done:
            return (
                f"states {name} = {value!r} in attn_config, which transformers' code leaves out; {done!r} is supported"
            )
    scale = getattr(config, "logit_scale", None)
    return None if scale is None else f"states logit_scale = {scale!r}, which transformers' code leaves out"


def _attention_interface(config: PretrainedConfig) -> str | None:
    module = sys.modules[MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].__module__]
    is_put = config.model_type in own_attention.MODEL_TYPES
    if not is_put and not hasattr(module, "ALL_ATTENTION_FUNCTIONS"):  # the registry that layers ask for a function
        return "has attention of its own that does not go through transformers' attention interface; not supported"
    return None


MOST_HEAD_DIM = 512
_CHECKS: Iterable[Callable[[PretrainedConfig], str | None]] = (
    _sizes_by_layer,
    _experts,
    _recurrence,
    _other_layers,
    _direction,
    _sharing,
    _head_sizes,
    _biased_positions,
    _attention_interface,
)
