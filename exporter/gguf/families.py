"""What each architecture of GGUF files is among transformers' models: a row a family, which the reader works by.

A file states sizes and some constants; a row says what the rest is, and how llama.cpp's converter lays tensors out.
Knows nothing of bytes, and nothing of `reference`, which has a table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RMS, LAYER = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
SCALES_BY_POSITION = "attention.temperature_scale"
WINDOW = "attention.sliding_window"
_ATTENTION_BIAS = {"attention_bias": "attn_q.bias"}
_BIASES = {**_ATTENTION_BIAS, "mlp_bias": "ffn_up.bias"}


@dataclass(frozen=True, slots=True)
class Family:
    """Keys and tensors are named without the architecture's and the layer's prefix."""

    model_type: str  # of transformers
    epsilon: Mapping[str, str] = field(default_factory=lambda: {RMS: "rms_norm_eps"})  # key -> name in a configuration
    required: Mapping[str, str] = field(default_factory=dict)  # further keys -> names
    optional: Mapping[str, str] = field(default_factory=dict)  # the same, where the name's value without it is stated
    constants: Mapping[str, Any] = field(default_factory=dict)  # what all models of the family have and no file states
    if_present: Mapping[str, str] = field(default_factory=dict)  # flag of a configuration -> tensor of the first layer
    stated_once: Mapping[str, Any] = field(default_factory=dict)  # key -> the one value that transformers computes with
    ignored: tuple[str, ...] = ()  # keys without influence on logits of a text
    variants: Mapping[str, str] = field(default_factory=dict)  # key whose presence makes it another model_type
    window_period: int | None = None  # the last layer of so many has no window; None: all layers are alike
    has_window: bool = False  # in all layers, where the file states one
    local_base: float | None = None  # rotary base of layers with a window, where they have another; 0: the same one
    is_rotated: bool = True  # else positions are learned
    is_partial: bool = False  # the rotation may leave some dimensions of a head as they are
    pairs: tuple[str, ...] = ()  # tensors whose heads have rows 2i, 2i + 1 where transformers has i in two halves
    qkv_by_heads: bool = False  # transformers has query, key and value of a head together, the file of all heads
    transposed: tuple[str, ...] = ()  # matrices that transformers stores with inputs first
    norm_offset: float = 0.0  # that the file's norms have more than transformers'
    stacked: Mapping[str, str] = field(default_factory=dict)  # list of modules -> the one tensor that the file has
    by_layer: tuple[str, ...] = ()  # keys that may differ between layers
    own: tuple[str, ...] = ()  # keys that only code of the family's own reads, see `gemma`


_QK = ("attn_q", "attn_k")
_LAYER_NORM = {LAYER: "layer_norm_eps"}
_GPT2_NORM, _GPT2_INNER = {LAYER: "layer_norm_epsilon"}, {"feed_forward_length": "n_inner"}
_PARALLEL = {"use_parallel_residual": "use_parallel_residual"}
_LOGIT_SCALE = {"logit_scale": "logit_scale"}
_OF_HYBRIDS = (  # that files of Granite 4 have too where all of its layers are attention
    *("ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size", "ssm.time_step_rank"),
    "expert_shared_feed_forward_length",
)
_SECTIONS = ("rope.dimension_sections", "n_deepstack_layers")  # of positions of images; a text has one position

FAMILIES: dict[str, Family] = {
    "llama": Family("llama", if_present=_BIASES, pairs=_QK, has_window=True, variants={WINDOW: "mistral"}),
    "mistral": Family("mistral", pairs=_QK, has_window=True),
    "mistral3": Family(
        "mistral",
        pairs=_QK,
        has_window=True,
        variants={SCALES_BY_POSITION: "ministral3"},
    ),
    "qwen2": Family("qwen2"),
    "qwen2vl": Family("qwen2", ignored=_SECTIONS),
    "qwen3": Family("qwen3", if_present=_ATTENTION_BIAS),
    "qwen3vl": Family("qwen3", if_present=_ATTENTION_BIAS, ignored=_SECTIONS),
    "gemma": Family("gemma", norm_offset=1.0),
    "gemma2": Family(
        "gemma2",
        required={
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
            WINDOW: "sliding_window",
        },
        window_period=2,
        norm_offset=1.0,
    ),
    "gemma3": Family(
        "gemma3_text",
        optional={"final_logit_softcapping": "final_logit_softcapping"},
        constants={"final_logit_softcapping": None, "attn_logit_softcapping": None},
        window_period=6,
        local_base=10000.0,
        norm_offset=1.0,
    ),
    "gemma3n": Family(
        "gemma3n_text",
        required={
            "altup.active_idx": "altup_active_idx",
            "altup.num_inputs": "altup_num_inputs",
            "embedding_length_per_layer_input": "hidden_size_per_layer_input",
            "attention.shared_kv_layers": "num_kv_shared_layers",
        },
        optional={"final_logit_softcapping": "final_logit_softcapping"},
        window_period=5,
        local_base=10000.0,
        stacked={"altup_projections": "altup_projections", "altup_unembed_projections": "altup_unembed_projections"},
        own=("activation_sparsity_scale",),
    ),
    "gemma4": Family(
        "gemma4_text",
        optional={
            "embedding_length_per_layer_input": "hidden_size_per_layer_input",
            "attention.shared_kv_layers": "num_kv_shared_layers",
            "final_logit_softcapping": "final_logit_softcapping",
            "attention.key_length_swa": "head_dim",
        },
        constants={"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
        window_period=6,
        local_base=10000.0,
        by_layer=("attention.head_count_kv", "feed_forward_length"),
        own=("attention.value_length_swa", "rope.dimension_count_swa"),
    ),
    "phi3": Family("phi3", has_window=True, is_partial=True),
    "granite": Family(
        "granite",
        required={"logit_scale": "logits_scaling"},
        optional={
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
        },
        constants={"embedding_multiplier": 1.0, "residual_multiplier": 1.0},
        stated_once={"rope.scaling.finetuned": True},  # false: its layers do not rotate
        ignored=_OF_HYBRIDS,
        if_present=_BIASES,
        pairs=_QK,
    ),
    "smollm3": Family("smollm3", constants={"no_rope_layer_interval": 4}, if_present=_BIASES, pairs=_QK),
    "olmo2": Family("olmo2", if_present=_ATTENTION_BIAS, window_period=4, local_base=0.0, variants={WINDOW: "olmo3"}),
    "olmo": Family(
        "olmo",
        epsilon={},
        optional={"attention.clamp_kqv": "clip_qkv"},
        constants={"clip_qkv": None},
        stated_once={LAYER: 1e-5},
        if_present=_ATTENTION_BIAS,
        pairs=_QK,
    ),
    "phi2": Family("phi", epsilon=_LAYER_NORM, is_partial=True),
    "stablelm": Family(
        "stablelm",
        epsilon=_LAYER_NORM,
        required=_PARALLEL,
        if_present={"qk_layernorm": "attn_q_norm.weight", "use_qkv_bias": "attn_q.bias"},
        is_partial=True,
        stacked={"q_layernorm.norms": "q_layernorm", "k_layernorm.norms": "k_layernorm"},
    ),
    "starcoder2": Family(
        "starcoder2",
        epsilon={LAYER: "norm_epsilon"},
        constants={"sliding_window": 4096},
        if_present={"use_bias": "attn_q.bias"},
    ),
    "glm4": Family("glm4", if_present=_ATTENTION_BIAS, is_partial=True),
    "chatglm": Family("glm", if_present=_ATTENTION_BIAS, is_partial=True),
    "exaone": Family("exaone", if_present=_BIASES),
    "exaone4": Family("exaone4", window_period=4),
    "command-r": Family(
        "cohere",
        epsilon=_LAYER_NORM,
        required=_LOGIT_SCALE,
        if_present={**_ATTENTION_BIAS, "use_qk_norm": "attn_q_norm.weight"},
    ),
    "cohere2": Family(
        "cohere2",
        epsilon=_LAYER_NORM,
        required={**_LOGIT_SCALE, WINDOW: "sliding_window"},
        if_present=_ATTENTION_BIAS,
        window_period=4,
    ),
    "gpt2": Family(
        "gpt2",
        epsilon=_GPT2_NORM,
        required=_GPT2_INNER,
        is_rotated=False,
        transposed=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
    ),
    "starcoder": Family(
        "gpt_bigcode",
        epsilon=_GPT2_NORM,
        required=_GPT2_INNER,
        constants={"multi_query": True},
        stated_once={"attention.head_count_kv": 1},
        is_rotated=False,
    ),
    "gptneox": Family(
        "gpt_neox",
        epsilon=_LAYER_NORM,
        required=_PARALLEL,
        if_present={"attention_bias": "attn_qkv.bias"},
        is_partial=True,
        qkv_by_heads=True,
    ),
    "bloom": Family("bloom", epsilon=_GPT2_NORM, is_rotated=False, qkv_by_heads=True),
    "mpt": Family(
        "mpt",
        epsilon=_GPT2_NORM,
        optional={"attention.clamp_kqv": "attn_config.clip_qkv"},
        stated_once={"attention.max_alibi_bias": 8.0},
        is_rotated=False,
    ),
    "ernie4_5": Family("ernie4_5", if_present={"use_bias": "attn_q.bias"}),
    "seed_oss": Family("seed_oss", if_present={**_BIASES, "attention_out_bias": "attn_output.bias"}),
    "nemotron": Family(
        "nemotron",
        epsilon={LAYER: "norm_eps"},
        ignored=(RMS,),
        if_present=_BIASES,
        is_partial=True,
        norm_offset=1.0,
    ),
    "arcee": Family("arcee", if_present=_BIASES, pairs=_QK),
    "jais2": Family("jais2", epsilon=_LAYER_NORM, if_present=_BIASES),
    "hunyuan-dense": Family("hunyuan_v1_dense", if_present=_ATTENTION_BIAS),
}
ARCHITECTURES = tuple(FAMILIES)
