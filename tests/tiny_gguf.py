"""Writes a checkpoint's folder as GGUF with the gguf package, in the order that llama.cpp's converter gives rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch
from reference.k_quants import quantise_q4_k, quantise_q6_k
from safetensors.numpy import load_file
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
Type = gguf.GGMLQuantizationType
FAMILIES = ("llama", "llama_tied", "llama3_rope", "qwen2", "qwen3")  # of tiny_models; a Mistral's window has no field
_ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}


def write_gguf(
    folder: Path,
    path: Path,
    *,
    type_of: Callable[[str], Type] = lambda _: Type.F32,
    fields: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    extra: Mapping[str, Array] | None = None,
    part_tensors: int = 0,
) -> Path:
    """The folder's model.

    type_of: of a matrix by its name in the file. fields: further metadata, "{arch}" stands for the architecture; None
    leaves one out. without: tensors that are left out. extra: further tensors. part_tensors: of each part of a split
    file; 0 writes one.
    """
    config = AutoConfig.from_pretrained(folder)
    names = gguf.get_tensor_name_map(_ARCHITECTURES[config.model_type], config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, config.model_type, split_max_tensors=part_tensors)
    for key, value in {**_shape(config), **(fields or {})}.items():
        if value is not None:
            add(writer, key.replace("{arch}", config.model_type), value)
    for name, rows in load_file(folder / "model.safetensors").items():
        stem, _, kind = name.rpartition(".")
        stored = f"{names.get_name(stem)}.{kind}"
        if stored not in without:
            _add_tensor(writer, stored, _as_llama_cpp(config, name, rows), type_of(stored))
    for name, rows in (extra or {}).items():
        writer.add_tensor(name, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """A field of the type that its value has."""
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    kinds.get(type(value), writer.add_array)(key, value)


def _shape(config: Any) -> dict[str, Any]:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "{arch}.vocab_size": config.vocab_size,
        "{arch}.context_length": config.max_position_embeddings,
        "{arch}.embedding_length": config.hidden_size,
        "{arch}.block_count": config.num_hidden_layers,
        "{arch}.feed_forward_length": config.intermediate_size,
        "{arch}.attention.head_count": config.num_attention_heads,
        "{arch}.attention.head_count_kv": config.num_key_value_heads,
        "{arch}.attention.key_length": head_dim,
        "{arch}.attention.value_length": head_dim,
        "{arch}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "{arch}.rope.dimension_count": head_dim,
        "{arch}.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "tokenizer.ggml.bos_token_id": config.bos_token_id,
        "tokenizer.ggml.eos_token_id": config.eos_token_id,
    }


def _as_llama_cpp(config: Any, name: str, rows: Array) -> Array:
    """Llama's q and k: row 2i and 2i + 1 of a head are what transformers has in row i of its two halves."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if config.model_type != "llama" or heads is None:
        return rows
    head_dim = rows.shape[0] // heads
    order = [
        head * head_dim + half * head_dim // 2 + row
        for head in range(heads)
        for row in range(head_dim // 2)
        for half in (0, 1)
    ]
    return np.ascontiguousarray(rows[order])


def _add_tensor(writer: gguf.GGUFWriter, name: str, rows: Array, kind: Type) -> None:
    if rows.ndim == 1 or kind == Type.F32:
        writer.add_tensor(name, rows.astype(np.float32))
    else:
        quantise = {Type.Q4_K: quantise_q4_k, Type.Q6_K: quantise_q6_k}.get(kind)
        floats = rows.astype(np.float32)
        writer.add_tensor(name, quantise(floats) if quantise else gguf.quantize(floats, kind), raw_dtype=kind)


def tokenizer_fields(kind: str, tokens: list[str], token_types: list[int], **more: Any) -> dict[str, Any]:
    """The metadata of a tokenizer."""
    fields = {"model": kind, "tokens": tokens, "token_type": token_types, **more}
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items()}


def llama3_freqs(folder: Path) -> Array:
    """What llama.cpp's converter writes as rope_freqs.weight: how much slower transformers' frequencies are."""
    config = AutoConfig.from_pretrained(folder)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, 2 * scaled.numel(), 2) / 16)
    return (plain / scaled).numpy().astype(np.float32)
