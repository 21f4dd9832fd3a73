"""Architecture -> a tiny random checkpoint: the table of what must export and be right.

Each line says what is new in it. `FULL` are those that all checks run on; the others are exported and their logits
compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import transformers

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SHAPE: dict[str, Any] = {
    "vocab_size": 258,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 257,
}
_OLD = {"vocab_size": 258, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256} | {
    key: SHAPE[key] for key in ("bos_token_id", "eos_token_id")
}
_WINDOWS = {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]}
_TWO_TABLES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 2.0},
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + index / 8 for index in range(8)],
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 256,
    "partial_rotary_factor": 1.0,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "llama_4_scaling_beta": 0.1,
}
_GEMMA4 = {
    **SHAPE,
    "num_hidden_layers": 6,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 24,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 258,
    "use_double_wide_mlp": True,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
}
_BASE = {"rope_type": "default", "rope_theta": 10000.0}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
_SIX_HEADS = {"hidden_size": 96, "num_attention_heads": 6}  # ALiBi's slopes of other counts than powers of two
_MULTIPLIERS = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2}

# name -> (configuration's class, what differs from SHAPE, what is new)
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str]] = {
    "Llama": ("LlamaConfig", {}, "five nodes a layer"),
    "Llama, dynamic rope": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        "frequencies that change beyond the length of training",
    ),
    "Llama, ragged sizes": (
        "LlamaConfig",
        {"hidden_size": 72, "intermediate_size": 90, "num_attention_heads": 6, "attention_bias": True},
        "sizes that are no multiple of 16 or 64, biases",
    ),
    "Qwen 2": ("Qwen2Config", {}, "biases of query, key and value"),
    "Qwen 3": ("Qwen3Config", {"head_dim": 32}, "norms of each head"),
    "Mistral": ("MistralConfig", {"sliding_window": 24}, "a window"),
    "Ministral 3": ("Ministral3Config", {"rope_parameters": YARN}, "queries scaled by position"),
    "Seed-OSS": ("SeedOssConfig", {}, "biases"),
    "Gemma 1": ("GemmaConfig", {"head_dim": 16}, "1 + w norms, embedding multiplier, GeGLU, tied"),
    "Gemma 2": ("Gemma2Config", {"head_dim": 16, **_WINDOWS}, "norms behind, softcaps, windows by layer"),
    "Gemma 3": (
        "Gemma3TextConfig",
        {"head_dim": 16, "rope_parameters": _TWO_TABLES, **_WINDOWS},
        "a rotary table for each kind of layer",
    ),
    "Gemma 3n": (
        "Gemma3nTextConfig",
        {
            "num_hidden_layers": 6,
            "head_dim": 16,
            "sliding_window": 24,
            "num_kv_shared_layers": 3,
            "laurel_rank": 32,
            "hidden_size_per_layer_input": 32,
            "vocab_size_per_layer_input": 250,
            "pad_token_id": 0,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
            "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0, 0.0, 0.0],
        },
        "several residual streams, embeddings by layer, layers that share caches",
    ),
    "Gemma 4, embeddings by layer": (
        "Gemma4TextConfig",
        _GEMMA4,
        "the same without streams, wider heads in full attention",
    ),
    "Gemma 4": (
        "Gemma4TextConfig",
        {
            **_GEMMA4,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
            "use_double_wide_mlp": False,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "final_logit_softcapping": 5.0,
        },
        "keys that are values too, other heads in full attention",
    ),
    "VaultGemma": ("VaultGemmaConfig", {"head_dim": 16, **_WINDOWS}, "Gemma 2 without norms behind"),
    "Phi-1.5, Phi-2": ("PhiConfig", {"num_key_value_heads": 4}, "parallel residual, LayerNorm, partial rotary, GELU"),
    "Phi-3, Phi-4": ("Phi3Config", {"sliding_window": 24}, "fused qkv and gate_up"),
    "Phi-3.5, Phi-4-mini": (
        "Phi3Config",
        {"max_position_embeddings": 512, "original_max_position_embeddings": 256, "rope_parameters": _LONGROPE},
        "longrope",
    ),
    "SmolLM3": ("SmolLM3Config", {"no_rope_layers": [1, 0]}, "layers without rotation"),
    "Granite 3": ("GraniteConfig", {**_MULTIPLIERS, "logits_scaling": 4.0}, "multipliers everywhere"),
    "Granite 4, attention alone": (
        "GraniteMoeHybridConfig",
        {
            **_MULTIPLIERS,
            "layer_types": ["attention", "attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 96,
            "mamba_n_heads": 8,
            "position_embedding_type": "rope",
        },
        "a hybrid's configuration without its Mamba layers",
    ),
    "Granite SWA": (
        "GraniteSWAConfig",
        {**_MULTIPLIERS, **_WINDOWS, "logits_scaling": 4.0, "layer_rope_theta": [10000.0, 0]},
        "attention sinks, windows, a rotary base or none by layer",
    ),
    "OLMo 1": ("OlmoConfig", {"clip_qkv": 2.0}, "LayerNorm without weights, clipped qkv"),
    "OLMo 2": ("Olmo2Config", {}, "norms of whole projections, norms behind alone"),
    "OLMo 3": ("Olmo3Config", {**_WINDOWS}, "the same with windows"),
    "GLM-4": ("GlmConfig", {"head_dim": 16, "pad_token_id": 0}, "interleaved partial rotary"),
    "GLM-4-0414": ("Glm4Config", {"head_dim": 16, "pad_token_id": 0}, "the same with norms behind"),
    "StableLM 2": ("StableLmConfig", {"partial_rotary_factor": 0.5}, "LayerNorm beside a gated MLP"),
    "StableLM 2 12B": (
        "StableLmConfig",
        {"qk_layernorm": True, "use_parallel_residual": True},
        "LayerNorm of each head with weights of its own",
    ),
    "GPT-2": ("GPT2Config", _OLD, "learned positions, transposed weights"),
    "GPT-BigCode": ("GPTBigCodeConfig", _OLD, "one head of keys"),
    "GPT-NeoX": ("GPTNeoXConfig", {"rotary_pct": 0.5}, "qkv by heads, parallel residual"),
    "Falcon 7B": ("FalconConfig", {"num_kv_heads": 1}, "one head of keys in fused qkv, parallel residual"),
    "Falcon 40B": (
        "FalconConfig",
        {"num_kv_heads": 2, "new_decoder_architecture": True},
        "the same with groups of heads and two norms",
    ),
    "Falcon RW": (
        "FalconConfig",
        {**_SIX_HEADS, "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
        "ALiBi that is rounded, a head of keys for each of queries",
    ),
    "GPT-J": ("GPTJConfig", {**_OLD, "rotary_dim": 8}, "pairs rotate, bias of the output layer"),
    "OPT": (
        "OPTConfig",
        {"ffn_dim": 96, "word_embed_proj_dim": 64, "do_layer_norm_before": True},
        "positions from 2 on, ReLU",
    ),
    "OPT 350M": (
        "OPTConfig",
        {"ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
        "projections around the layers, LayerNorm behind",
    ),
    "StarCoder 2": ("Starcoder2Config", {"sliding_window": 24}, "a plain MLP with biases"),
    "EXAONE 3.5": ("ExaoneConfig", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, "as Llama"),
    "EXAONE 4": ("Exaone4Config", {**_WINDOWS}, "norms behind, rotation in windows alone"),
    "ERNIE 4.5": ("Ernie4_5Config", {"head_dim": 16}, "interleaved rotary"),
    "Cohere 1": ("CohereConfig", {"use_qk_norm": True}, "LayerNorm without bias, scaled logits"),
    "Cohere 2": ("Cohere2Config", {**_WINDOWS, "logit_scale": 4.0}, "parallel residual with windows"),
    "Nemotron": ("NemotronConfig", {}, "1 + w LayerNorm, squared ReLU"),
    "Bloom": ("BloomConfig", {**_OLD, "hidden_size": 64}, "ALiBi, a norm of the embedding"),
    "MPT": (
        "MptConfig",
        {
            "vocab_size": 258,
            "d_model": 96,
            "n_layers": 2,
            "n_heads": 6,
            "max_seq_len": 256,
            **{key: SHAPE[key] for key in ("bos_token_id", "eos_token_id")},
            "attn_config": {"clip_qkv": 3.0},
        },
        "ALiBi, clipped qkv",
    ),
    "BioGPT": ("BioGptConfig", {"num_key_value_heads": 4}, "positions from 2 on, scaled embedding"),
    "CodeGen": ("CodeGenConfig", {**_OLD, "rotary_dim": 8, "n_ctx": 256}, "qkv in parts of its own order"),
    "Hunyuan": ("HunYuanDenseV1Config", {"head_dim": 16, "rope_parameters": _BASE}, "norms behind the rotation"),
    "Apertus": ("ApertusConfig", {"rope_parameters": _BASE}, "xIELU"),
    "Arcee": ("ArceeConfig", {}, "squared ReLU"),
    "Helium": ("HeliumConfig", {"head_dim": 16}, "as Llama with pairs"),
    "NanoChat": ("NanoChatConfig", {}, "norms without weights, behind the rotation"),
    "Jais 2": ("Jais2Config", {}, "biases everywhere"),
    "Persimmon": ("PersimmonConfig", {}, "qkv by heads with LayerNorm"),
    "BitNet": ("BitNetConfig", {}, "norms inside attention and MLP"),
    "CWM": ("CwmConfig", {}, "as Llama with windows"),
    "HyperCLOVA X": ("HyperCLOVAXConfig", {"use_post_norm": True}, "norms behind, multipliers"),
    "Qwen 2.5 VL, text": ("Qwen2_5_VLConfig", {"rope_parameters": MROPE}, "the text part of a model with images"),
    "Qwen 3 VL, text": ("Qwen3VLConfig", {"rope_parameters": MROPE, "head_dim": 16}, "the same"),
    "Mistral 3, text": ("Mistral3Config", {"model_type": "mistral", "sliding_window": None}, "the same"),
    "Gemma 3, text": (
        "Gemma3Config",
        {"model_type": "gemma3_text", "head_dim": 16, "rope_parameters": _TWO_TABLES, **_WINDOWS},
        "the same",
    ),
}
# Nodes a layer of those that are not fused whole, which is five.
NODES = {
    "Llama, ragged sizes": 6,
    "Ministral 3": 6,
    "Gemma 1": 6,
    "Gemma 2": 8,
    "Gemma 3": 8,
    "Gemma 3n": 14,
    "Gemma 4, embeddings by layer": 12,
    "Gemma 4": 8,
    "Falcon RW": 8,
    "VaultGemma": 6,
    "Phi-1.5, Phi-2": 7,
    "OLMo 1": 8,
    "OLMo 2": 8,
    "OLMo 3": 8,
    "GLM-4-0414": 7,
    "StableLM 2": 7,
    "StableLM 2 12B": 7,
    "GPT-2": 8,
    "GPT-BigCode": 8,
    "GPT-NeoX": 7,
    "Falcon 7B": 7,
    "Falcon 40B": 7,
    "GPT-J": 7,
    "OPT": 8,
    "OPT 350M": 8,
    "StarCoder 2": 8,
    "EXAONE 4": 7,
    "Cohere 1": 7,
    "Cohere 2": 6,
    "Nemotron": 8,
    "Bloom": 8,
    "MPT": 9,
    "BioGPT": 8,
    "CodeGen": 7,
    "Hunyuan": 6,
    "Apertus": 6,
    "Arcee": 6,
    "NanoChat": 7,
    "Jais 2": 8,
    "Persimmon": 9,
    "BitNet": 6,
    "HyperCLOVA X": 7,
    "Gemma 3, text": 8,
}
# Every mechanism once.
FULL = (
    *("Llama, ragged sizes", "Gemma 2", "Gemma 3", "Phi-1.5, Phi-2", "Phi-3.5, Phi-4-mini", "SmolLM3", "Granite 3"),
    *("OLMo 1", "OLMo 2", "GLM-4", "GPT-2", "GPT-NeoX", "OPT", "Cohere 2", "Gemma 3, text"),
    *("Gemma 3n", "Gemma 4, embeddings by layer", "Bloom", "Falcon RW", "Granite SWA"),
)


def config_of(name: str) -> PretrainedConfig:
    """The configuration of a tiny model; of a model of several parts, one whose text part is tiny."""
    kind, changes, _ = ARCHITECTURES[name]
    values = changes if "n_layer" in changes or "n_layers" in changes else {**SHAPE, **changes}
    build = getattr(transformers, kind)
    config: PretrainedConfig = build(text_config=values) if name.endswith(", text") else build(**values)
    return config
