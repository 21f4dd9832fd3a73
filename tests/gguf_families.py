"""Architectures of tests/architectures.py as GGUF files: under which name, and with which fields of metadata.

Written from what llama.cpp's converter does; exporter/test_gguf_llama_cpp.py compares the files with llama.cpp itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from architectures import YARN

Value = str | Callable[[Any], Any]  # an attribute of the configuration, or what is made of it


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """How one architecture is written."""

    architecture: str
    fields: Mapping[str, Value] = field(default_factory=dict)  # beside those that all have
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the tiny configuration, where no file can say it all
    pairs: bool = False  # heads of query and key are stored as pairs of rows
    one_more: bool = False  # norms are stored with 1 added
    transposed: bool = False
    by_heads: bool = False  # query, key and value are stored apart, and lie by heads in transformers


def _rotated(config: Any) -> int:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(head_dim * _rope(config).get("partial_rotary_factor", 1.0))


def _rope(config: Any) -> dict[str, Any]:
    parameters = config.rope_parameters
    found: dict[str, Any] = parameters.get("full_attention", parameters)
    return found


def _scaling(config: Any) -> dict[str, Any]:
    """Fields of a rotary embedding that is scaled."""
    rope = _rope(config)
    if rope["rope_type"] not in ("linear", "yarn"):
        return {}
    fields = {"type": rope["rope_type"], "factor": rope["factor"]}
    if "original_max_position_embeddings" in rope:
        fields["original_context_length"] = rope["original_max_position_embeddings"]
    return {f"rope.scaling.{key}": value for key, value in fields.items()}


RMS: dict[str, Value] = {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
LAYER: dict[str, Value] = {"attention.layer_norm_epsilon": "layer_norm_eps"}
ROPE: dict[str, Value] = {"rope.freq_base": lambda config: float(_rope(config)["rope_theta"])}
COUNT: dict[str, Value] = {"rope.dimension_count": _rotated}
WINDOW: dict[str, Value] = {"attention.sliding_window": "sliding_window"}
HEADS: dict[str, Value] = {"attention.key_length": "head_dim", "attention.value_length": "head_dim"}
PARALLEL: dict[str, Value] = {"use_parallel_residual": "use_parallel_residual"}
PATTERN: dict[str, Value] = {
    "attention.sliding_window_pattern": lambda config: [kind == "sliding_attention" for kind in config.layer_types]
}
_LONGROPE: dict[str, Value] = {
    "rope.scaling.original_context_length": lambda config: _rope(config)["original_max_position_embeddings"],
    "rope.scaling.attn_factor": lambda _: (1 + 1 / 8) ** 0.5,  # 512 positions of 256, whose logarithms are 9 and 8
}
SHARED: dict[str, Value] = {
    "attention.shared_kv_layers": "num_kv_shared_layers",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "final_logit_softcapping": "final_logit_softcapping",
}


def _by_kind(name: str, kind: str) -> Callable[[Any], Any]:
    """Of the layers of a kind, in a configuration that states sizes by layer."""
    return lambda config: getattr(config.per_layer_config[config.layer_types.index(kind)], name)


def _kv_heads_by_layer(config: Any) -> Any:
    found = [layer.num_key_value_heads for layer in config.per_layer_config]
    return found if len(set(found)) > 1 else found[0]


def _feed_forward(config: Any) -> Any:
    first_shared = config.num_hidden_layers - config.num_kv_shared_layers
    if not config.use_double_wide_mlp:
        return config.intermediate_size
    return [config.intermediate_size * (1 + (layer >= first_shared)) for layer in range(config.num_hidden_layers)]


GEMMA4: dict[str, Value] = {
    **RMS,
    **WINDOW,
    **PATTERN,
    **SHARED,
    **ROPE,
    "rope.freq_base_swa": lambda config: float(config.rope_parameters["sliding_attention"]["rope_theta"]),
    **{f"attention.{part}_length": _by_kind("head_dim", "full_attention") for part in ("key", "value")},
    **{f"attention.{part}_length_swa": _by_kind("head_dim", "sliding_attention") for part in ("key", "value")},
    "rope.dimension_count": _by_kind("head_dim", "full_attention"),
    "rope.dimension_count_swa": _by_kind("head_dim", "sliding_attention"),
    "attention.head_count_kv": _kv_heads_by_layer,
    "feed_forward_length": _feed_forward,
}
_LAYERS = {"num_hidden_layers": 6, "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}

GGUF_FAMILIES: dict[str, GgufFamily] = {
    "Llama": GgufFamily("llama", {**RMS, **ROPE, **COUNT}, pairs=True),
    "Llama, ragged sizes": GgufFamily("llama", {**RMS, **ROPE, **COUNT}, pairs=True),
    "Qwen 2": GgufFamily("qwen2", {**RMS, **ROPE}),
    "Qwen 3": GgufFamily("qwen3", {**RMS, **ROPE, **HEADS}),
    "Mistral": GgufFamily("llama", {**RMS, **ROPE, **COUNT, **WINDOW}, pairs=True),
    "Gemma 1": GgufFamily("gemma", {**RMS, **HEADS}, one_more=True),
    "Gemma 2": GgufFamily(
        "gemma2",
        {
            **RMS,
            **HEADS,
            **WINDOW,
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        changes={"query_pre_attn_scalar": 16},
        one_more=True,
    ),
    "Gemma 3": GgufFamily(
        "gemma3",
        {**RMS, **HEADS, **ROPE, **WINDOW},
        changes={**_LAYERS, "query_pre_attn_scalar": 16},
        one_more=True,
    ),
    "Gemma 3n": GgufFamily(
        "gemma3n",
        {
            **RMS,
            **HEADS,
            **ROPE,
            **WINDOW,
            **PATTERN,
            **SHARED,
            "altup.active_idx": "altup_active_idx",
            "altup.num_inputs": "altup_num_inputs",
            "feed_forward_length": lambda config: config.intermediate_size[0],
            "activation_sparsity_scale": lambda config: [
                NormalDist().inv_cdf(share) if share else -math.inf for share in config.activation_sparsity_pattern
            ],
        },
        changes={"vocab_size_per_layer_input": 258},
    ),
    "Gemma 4": GgufFamily("gemma4", GEMMA4),
    "Gemma 4, embeddings by layer": GgufFamily("gemma4", GEMMA4),
    "Phi-3, Phi-4": GgufFamily("phi3", {**RMS, **ROPE, **COUNT, **WINDOW}),
    "Phi-3.5, Phi-4-mini": GgufFamily(
        "phi3", {**RMS, **ROPE, **COUNT, **_LONGROPE, "attention.sliding_window": lambda _: 0}
    ),
    "SmolLM3": GgufFamily(
        "smollm3",
        {**RMS, **ROPE, **COUNT},
        changes={"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]},
        pairs=True,
    ),
    "Granite 3": GgufFamily(
        "granite",
        {
            **RMS,
            **ROPE,
            **COUNT,
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
        pairs=True,
    ),
    "OLMo 2": GgufFamily("olmo2", {**RMS, **ROPE}),
    "OLMo 1": GgufFamily(
        "olmo", {"attention.layer_norm_epsilon": lambda _: 1e-5, "attention.clamp_kqv": "clip_qkv", **ROPE}, pairs=True
    ),
    "OLMo 3": GgufFamily("olmo2", {**RMS, **ROPE, **WINDOW, **PATTERN}),
    "Phi-1.5, Phi-2": GgufFamily("phi2", {**LAYER, **COUNT}, changes={"intermediate_size": 256}),
    "StableLM 2": GgufFamily("stablelm", {**LAYER, **COUNT, **PARALLEL}),
    "StableLM 2 12B": GgufFamily("stablelm", {**LAYER, **COUNT, **PARALLEL}),
    "StarCoder 2": GgufFamily(
        "starcoder2", {"attention.layer_norm_epsilon": "norm_epsilon", **ROPE}, changes={"sliding_window": 4096}
    ),
    "GLM-4": GgufFamily("chatglm", {**RMS, **COUNT, **ROPE}),
    "GLM-4-0414": GgufFamily("glm4", {**RMS, **COUNT, **ROPE, **HEADS}),
    "EXAONE 3.5": GgufFamily("exaone", {**RMS, **COUNT, **ROPE}),
    "EXAONE 4": GgufFamily("exaone4", {**RMS, **ROPE, **WINDOW, **PATTERN}),
    "Cohere 1": GgufFamily(
        "command-r", {**LAYER, **ROPE, "logit_scale": "logit_scale", "rope.scaling.type": lambda _: "none"}
    ),
    "Cohere 2": GgufFamily(
        "cohere2",
        {**LAYER, **ROPE, **COUNT, **WINDOW, "logit_scale": "logit_scale", "rope.scaling.type": lambda _: "none"},
        changes={"num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    ),
    "GPT-2": GgufFamily("gpt2", {"attention.layer_norm_epsilon": "layer_norm_epsilon"}, transposed=True),
    "GPT-BigCode": GgufFamily(
        "starcoder",
        {"attention.layer_norm_epsilon": "layer_norm_epsilon", "attention.head_count_kv": lambda _: 1},
    ),
    "GPT-NeoX": GgufFamily(
        "gptneox", {**LAYER, **COUNT, **PARALLEL, "attention.head_count_kv": lambda _: None}, by_heads=True
    ),
    "Bloom": GgufFamily("bloom", {"attention.layer_norm_epsilon": "layer_norm_epsilon"}, by_heads=True),
    "MPT": GgufFamily(
        "mpt",
        {
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
            "attention.clamp_kqv": lambda config: config.attn_config.clip_qkv,
            "attention.max_alibi_bias": lambda _: 8.0,
        },
    ),
    "ERNIE 4.5": GgufFamily("ernie4_5", {**RMS, **ROPE, **HEADS}),
    "Seed-OSS": GgufFamily("seed_oss", {**RMS, **ROPE, **HEADS}),
    "Nemotron": GgufFamily(
        "nemotron",
        {
            "attention.layer_norm_epsilon": "norm_eps",
            "attention.layer_norm_rms_epsilon": "norm_eps",
            **ROPE,
            **COUNT,
            "rope.scaling.type": lambda _: "none",
        },
        one_more=True,
    ),
    "Arcee": GgufFamily("arcee", {**RMS, **ROPE, **COUNT, **HEADS}, pairs=True),
    "Jais 2": GgufFamily("jais2", {**LAYER, **ROPE, **COUNT, **HEADS}),
    "Hunyuan": GgufFamily("hunyuan-dense", {**RMS, **ROPE, **HEADS}),
    "Ministral 3": GgufFamily(
        "mistral3",
        {
            **RMS,
            **ROPE,
            **COUNT,
            **HEADS,
            "rope.scaling.yarn_log_multiplier": lambda config: _rope(config)["mscale_all_dim"],
            "attention.temperature_scale": lambda config: _rope(config)["llama_4_scaling_beta"],
        },
        changes={"rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
        pairs=True,
    ),
    "Qwen 2.5 VL, text": GgufFamily("qwen2vl", {**RMS, **ROPE, "rope.dimension_sections": lambda _: [2, 3, 3, 0]}),
    "Qwen 3 VL, text": GgufFamily(
        "qwen3vl", {**RMS, **ROPE, **HEADS, "rope.dimension_sections": lambda _: [3, 3, 2, 0]}
    ),
    "Mistral 3, text": GgufFamily("mistral3", {**RMS, **ROPE, **COUNT, **HEADS}, pairs=True),
    "Gemma 3, text": GgufFamily(
        "gemma3", {**RMS, **HEADS, **ROPE, **WINDOW}, changes={**_LAYERS, "query_pre_attn_scalar": 16}, one_more=True
    ),
}


def _kv_heads(config: Any) -> Any:
    by_layer = "num_key_value_heads" in (getattr(config, "per_layer_attributes", None) or ())
    return None if by_layer else getattr(config, "num_key_value_heads", None)


def gguf_fields(name: str, config: Any) -> dict[str, Any]:
    """Metadata of a model, "{arch}" standing for its architecture."""
    inner = next((size for key in ("intermediate_size", "n_inner") if (size := getattr(config, key, None))), None)
    fields: dict[str, Any] = {
        "context_length": getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", 256),
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": inner or 4 * config.hidden_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": _kv_heads(config),
    }
    for key, value in GGUF_FAMILIES[name].fields.items():
        fields[key] = value(config) if callable(value) else getattr(config, value)
    if "rope.freq_base" in fields:
        fields |= _scaling(config)
    named = {f"{{arch}}.{key}": value for key, value in fields.items()}
    return {**named, **{f"tokenizer.ggml.{key}": getattr(config, key) for key in ("bos_token_id", "eos_token_id")}}
