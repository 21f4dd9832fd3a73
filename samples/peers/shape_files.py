"""GGUF files in the shapes of models that people run, with random blocks: what real_shapes.py measures on.

Speed depends on shapes, not on values. Matrices are Q4_0 and the embedding, which is the output layer too, Q8_0 (or
Q6_K, which llama.cpp's own mixtures take where rows are whole blocks of it); they are written one at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from tokenizers import pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
Kind = gguf.GGMLQuantizationType
_CONTEXT = 4096
_BOS, _EOS = 256, 257
_NORMAL, _CONTROL = 1, 3  # tokenizer.ggml.token_type
_SCALES = {  # of a kind of blocks: at which byte the f16 scale is, and what makes weights of deviation one
    Kind.Q4_0: (0, 1 / 4.6),
    Kind.Q8_0: (0, 1 / 74),
    Kind.Q6_K: (208, 1 / 1370),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder whose embedding is its output layer, and what its architecture's files have beside others."""

    architecture: str  # of the GGUF file
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    rotated: int  # dimensions of a head
    fields: Mapping[str, Any] = field(default_factory=dict)
    norms: tuple[str, ...] = ()  # of a layer, beside those before attention and MLP
    fused: bool = False  # one matrix of query, key and value, one of gate and up


SHAPES = {
    "Qwen3-1.7B": Shape("qwen3", 2048, 28, 16, 8, 128, 6144, 151936, 128, norms=("attn_q_norm", "attn_k_norm")),
    "Gemma-3-1B": Shape(
        *("gemma3", 1152, 26, 4, 1, 256, 6912, 262144, 256),
        fields={"attention.sliding_window": 512},
        norms=("attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"),
    ),
    "SmolLM3-3B": Shape("smollm3", 2048, 36, 16, 4, 128, 11008, 128256, 128),
    "Phi-4-mini": Shape(
        "phi3", 3072, 32, 24, 8, 128, 8192, 200064, 96, fields={"attention.sliding_window": 0}, fused=True
    ),
}


def write_shape(shape: Shape, path: Path, embedding: Kind) -> None:
    """Writes the file of a shape, whose embedding has blocks of a kind."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    for key, value in {**_sizes(shape), **_tokenizer(shape.vocabulary)}.items():
        kinds = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        kinds.get(type(value), writer.add_array)(key, value)
    tensors = {"token_embd.weight": ((shape.vocabulary, shape.hidden), embedding)}
    for layer in range(shape.layers):
        for name, rows in _matrices(shape).items():
            tensors[f"blk.{layer}.{name}.weight"] = rows, Kind.Q4_0 if len(rows) > 1 else Kind.F32
    tensors["output_norm.weight"] = (shape.hidden,), Kind.F32
    for name, (rows, kind) in tensors.items():
        stored = (*rows[:-1], _row_bytes(rows[-1], kind)) if kind != Kind.F32 else rows
        dtype = np.dtype(np.float32 if kind == Kind.F32 else np.uint8)
        writer.add_tensor_info(name, stored, dtype, math.prod(stored) * dtype.itemsize, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    numbers = np.random.default_rng(1)
    for rows, kind in tensors.values():
        writer.write_tensor_data(np.ones(rows, np.float32) if kind == Kind.F32 else _blocks(numbers, rows, kind))
    writer.close()


def _sizes(shape: Shape) -> dict[str, Any]:
    fields = {
        "context_length": _CONTEXT,
        "embedding_length": shape.hidden,
        "block_count": shape.layers,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
        **shape.fields,
    }
    if shape.heads * shape.head_dim != shape.hidden:
        fields |= {"attention.key_length": shape.head_dim, "attention.value_length": shape.head_dim}
    if shape.architecture in ("phi3", "smollm3"):
        fields["rope.dimension_count"] = shape.rotated
    return {f"{shape.architecture}.{key}": value for key, value in fields.items()}


def _tokenizer(vocabulary: int) -> dict[str, Any]:
    """One token a byte, the two that begin and end a text, and names that no text has."""
    named = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>", "th"]
    fields = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*named, *(f"<unused{index}>" for index in range(vocabulary - len(named)))],
        "token_type": [_CONTROL if index in (_BOS, _EOS) else _NORMAL for index in range(vocabulary)],
        "merges": ["t h"],  # a file has at least one
        "bos_token_id": _BOS,
        "eos_token_id": _EOS,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items()}


def _matrices(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Tensors of a layer, rows first."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    parts = {"attn_q": q, "attn_k": kv, "attn_v": kv, "ffn_gate": shape.feed_forward, "ffn_up": shape.feed_forward}
    if shape.fused:
        parts = {"attn_qkv": q + 2 * kv, "ffn_up": 2 * shape.feed_forward}
    found: dict[str, tuple[int, ...]] = {name: (rows, shape.hidden) for name, rows in parts.items()}
    found |= {"attn_output": (shape.hidden, q), "ffn_down": (shape.hidden, shape.feed_forward)}
    for name in ("attn_norm", "ffn_norm", *shape.norms):
        found[name] = (shape.head_dim if name in ("attn_q_norm", "attn_k_norm") else shape.hidden,)
    return found


def _row_bytes(columns: int, kind: Kind) -> int:
    block_columns, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if columns % block_columns:
        raise SystemExit(f"rows of {columns} columns are no whole blocks of {kind.name}, which have {block_columns}")
    return columns // block_columns * block_bytes


def _blocks(numbers: np.random.Generator, shape: tuple[int, ...], kind: Kind) -> Array:
    """A matrix of blocks, u8 [rows, bytes]."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    found = np.frombuffer(numbers.bytes(shape[0] * _row_bytes(shape[1], kind)), np.uint8).reshape(-1, size).copy()
    place, scale = _SCALES[kind]
    found[:, place : place + 2] = np.frombuffer(np.float16(scale * shape[1] ** -0.5).tobytes(), np.uint8)
    return found.reshape(shape[0], -1)
