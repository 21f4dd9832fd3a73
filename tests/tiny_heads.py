"""Random heads for the tiny models, written in the layouts of the published ones: names, shapes and config keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN, VOCAB, FFN, HEADS, KV_HEADS = 64, 258, 96, 4, 2
HEAD_DIM = HIDDEN // HEADS
DRAFT_IDS = tuple(range(3, 258, 5))  # what the EAGLE-3 head scores
Tensors = dict[str, torch.Tensor]


def save_head(folder: Path, tensors: Tensors, config: dict[str, Any], file: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if file.endswith(".safetensors"):
        save_file(tensors, folder / file)
    else:
        torch.save(tensors, folder / file)
    return folder


def medusa(
    num_heads: int = 3, num_blocks: int = 1, *, shared_output: bool = False, taps: tuple[int, ...] = ()
) -> tuple[Tensors, dict[str, Any]]:
    """FasterDecoding: a list of heads, each residual blocks and an output layer. taps: an addition of this project."""
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(num_heads):
        for block in range(num_blocks):
            shapes[f"{head}.{block}.linear.weight"] = (HIDDEN, HIDDEN)
            shapes[f"{head}.{block}.linear.bias"] = (HIDDEN,)
        if not shared_output:
            shapes[f"{head}.{num_blocks}.weight"] = (VOCAB, HIDDEN)
    config = {
        "medusa_num_heads": num_heads,
        "medusa_num_layers": num_blocks,
        "base_model_name_or_path": "tiny/llama",
        "transformers_version": "4.34.1",
    }
    return _random(shapes | _streams(taps)), config | _named(taps)


def mlp_speculator(
    *, tie: bool = False, scale_input: bool = True, inner: int = 96, taps: tuple[int, ...] = ()
) -> tuple[Tensors, dict[str, Any]]:
    """ibm-fms: parts by stage under "speculator."; tied checkpoints may hold the first of shared parts only."""
    shapes: dict[str, tuple[int, ...]] = {}
    for stage in range(3):
        if not tie or stage == 0:
            shapes[f"emb.{stage}.weight"] = (VOCAB, inner)
            shapes[f"head.{stage}.weight"] = (VOCAB, inner)
            shapes[f"ln.{stage}.weight"] = (inner,)
            shapes[f"ln.{stage}.bias"] = (inner,)
        if not tie or stage < 2:
            shapes[f"proj.{stage}.weight"] = (inner, inner if stage else HIDDEN)
    config = {
        "architectures": ["MLPSpeculatorPreTrainedModel"],
        "model_type": "mlp_speculator",
        "emb_dim": HIDDEN,
        "inner_dim": inner,
        "n_predict": 3,
        "n_candidates": 5,
        "top_k_tokens_per_head": [4, 3, 2],
        "vocab_size": VOCAB,
        "tie_weights": tie,
        "scale_input": scale_input,
    }
    tensors = _random(shapes | _streams(taps))
    return {f"speculator.{name}": tensor for name, tensor in tensors.items()}, config | _named(taps)


def _streams(taps: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {"streams.weight": (HIDDEN, len(taps) * HIDDEN)} if taps else {}


def _named(taps: tuple[int, ...]) -> dict[str, list[int]]:
    return {"stream_taps": list(taps)} if taps else {}


def eagle(*, embedding: bool = True, bias: bool = True, vocab: int = VOCAB) -> tuple[Tensors, dict[str, Any]]:
    """EAGLE-1 and -2: fc over [embedding, state] and a decoder layer without a norm before its attention."""
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (HIDDEN, 2 * HIDDEN)}
    shapes |= {"fc.bias": (HIDDEN,)} if bias else {}
    shapes |= {"embed_tokens.weight": (vocab, HIDDEN)} if embedding else {}
    shapes |= {f"layers.0.{name}": shape for name, shape in _layer(HIDDEN).items()}
    return _random(shapes), _llama_config() | {"bias": bias, "vocab_size": vocab}


def eagle3(
    *, mapped: bool = True, vocab: int = VOCAB, draft_ids: tuple[int, ...] = DRAFT_IDS
) -> tuple[Tensors, dict[str, Any]]:
    """EAGLE-3: three streams, both halves normed, an output layer over some of the ids with d2t and t2d."""
    num_ids = len(draft_ids) if mapped else vocab
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "embed_tokens.weight": (vocab, HIDDEN),
        "midlayer.hidden_norm.weight": (HIDDEN,),
        "midlayer.input_layernorm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (num_ids, HIDDEN),
    }
    shapes |= {f"midlayer.{name}": shape for name, shape in _layer(2 * HIDDEN).items()}
    tensors = _random(shapes)
    if mapped:
        ids = torch.tensor(draft_ids)
        tensors["d2t"] = ids - torch.arange(num_ids)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, ids, value=True)
    config = _llama_config() | {
        "vocab_size": vocab,
        "draft_vocab_size": num_ids,
        "architectures": ["LlamaForCausalLMEagle3"],
    }
    return tensors, config


def _layer(qkv_columns: int) -> dict[str, tuple[int, ...]]:
    keys = KV_HEADS * HEAD_DIM
    return {
        "self_attn.q_proj.weight": (HIDDEN, qkv_columns),
        "self_attn.k_proj.weight": (keys, qkv_columns),
        "self_attn.v_proj.weight": (keys, qkv_columns),
        "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        "mlp.gate_proj.weight": (FFN, HIDDEN),
        "mlp.up_proj.weight": (FFN, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, FFN),
        "post_attention_layernorm.weight": (HIDDEN,),
    }


def _llama_config() -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5000.0,
        "hidden_act": "silu",
        "rope_scaling": None,
    }


def _random(shapes: dict[str, tuple[int, ...]]) -> Tensors:
    generator = torch.Generator().manual_seed(23)
    tensors = {}
    for name, shape in shapes.items():
        if len(shape) == 1 and name.endswith("weight"):
            tensors[name] = torch.rand(shape, generator=generator) + 0.5
        else:
            tensors[name] = 0.2 * torch.randn(shape, generator=generator)
    return tensors
