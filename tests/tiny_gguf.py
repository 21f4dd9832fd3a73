"""Writes a checkpoint's folder as GGUF with the gguf package, in the order that llama.cpp's converter gives rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch
import transformers
from architectures import ARCHITECTURES, SHAPE
from gguf_families import GGUF_FAMILIES, gguf_fields
from reference.k_quants import quantise_q4_k, quantise_q6_k
from safetensors.numpy import load_file
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from pilotfish.exporter.model_check import text_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gguf_families import GgufFamily
    from transformers import PretrainedConfig

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
        if key == "general.architecture":
            writer.kv_data[0][key].value = value
        elif value is not None:
            add(writer, key.replace("{arch}", config.model_type), value)
    for name, rows in load_file(folder / "model.safetensors").items():
        stem, _, kind = name.rpartition(".")
        stored = f"{names.get_name(stem)}.{kind}"
        if stored not in without:
            _add_tensor(writer, stored, _as_llama_cpp(config, name, rows), type_of(stored))
    for name, rows in (extra or {}).items():
        writer.add_tensor(name, rows)
    finish(writer)
    return path


def finish(writer: gguf.GGUFWriter) -> None:
    """Write what has been added, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_config(name: str) -> PretrainedConfig:
    """The tiny configuration of an architecture, as a file can state it."""
    kind, changes, _ = ARCHITECTURES[name]
    values = {**({} if {"n_layer", "n_layers"} & changes.keys() else SHAPE), **changes, **GGUF_FAMILIES[name].changes}
    build = getattr(transformers, kind)
    config: PretrainedConfig = build(text_config=values) if name.endswith(", text") else build(**values)
    return text_config(config, name)


def write_family(
    name: str,
    folder: Path,
    path: Path,
    *,
    fields: Mapping[str, Any] | None = None,
    architecture: str | None = None,
    fuse_qkv: bool = False,
) -> Path:
    """The folder's model, of a family of gguf_families, in f32.

    fields: as above. architecture: another name for it. fuse_qkv: one matrix of query, key and value a layer.
    """
    family, config = GGUF_FAMILIES[name], AutoConfig.from_pretrained(folder)
    table = gguf.get_tensor_name_map(_kind(family.architecture), config.num_hidden_layers)
    stated = architecture or family.architecture
    writer = gguf.GGUFWriter(path, stated)
    for key, value in {**gguf_fields(name, config), **(fields or {})}.items():
        if value is not None:
            add(writer, key.replace("{arch}", stated), value)
    tensors = {}
    for parameter, rows in _with_stacked(load_file(folder / "model.safetensors")).items():
        stem, _, suffix = parameter.rpartition(".")
        if suffix not in ("weight", "bias"):
            stem, suffix = parameter, "weight"
        stored = f"{table.get_name(stem) or table.get_name(stem.removeprefix('transformer.'))}.{suffix}"
        tensors[stored] = np.ascontiguousarray(_laid_out(family, config, stored, rows), dtype=np.float32)
    rope = getattr(config, "rope_parameters", None) or {}
    for kind in ("long", "short") if "long_factor" in rope else ():
        tensors[f"rope_factors_{kind}.weight"] = np.array(rope[f"{kind}_factor"], np.float32)
    if "full_attention" in rope and rope["full_attention"]["rope_type"] == "proportional":
        tensors["rope_freqs.weight"] = _proportional(config)
    for stored, rows in (_with_fused(tensors) if fuse_qkv else tensors).items():
        writer.add_tensor(stored, rows)
    finish(writer)
    return path


def _with_fused(tensors: dict[str, Array]) -> dict[str, Array]:
    parts: dict[str, list[Array]] = {}
    for part in ("attn_q", "attn_k", "attn_v"):
        for name in [name for name in tensors if f".{part}." in name]:
            parts.setdefault(name.replace(part, "attn_qkv"), []).append(tensors.pop(name))
    return {**tensors, **{name: np.concatenate(rows) for name, rows in parts.items()}}


def _with_stacked(tensors: dict[str, Array]) -> dict[str, Array]:
    """One tensor of the norms that single heads have, and of matrices of one kind for single streams."""
    parts: dict[str, list[Array]] = {}
    for name in sorted(name for name in tensors if re.search(r"\.norms\.|projections\.\d", name)):
        parts.setdefault(re.sub(r"(\.norms)?\.\d+\.weight$", ".weight", name), []).append(tensors.pop(name))
    return {**tensors, **{name: np.stack(rows) for name, rows in parts.items()}}


def _proportional(config: Any) -> Array:
    """Divisors of the frequencies of full attention, of which the last ones are to turn nothing."""
    layer = config.per_layer_config[config.layer_types.index("full_attention")]
    rotated = int(layer.head_dim * config.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
    return np.array([1.0] * rotated + [1e30] * (layer.head_dim // 2 - rotated), np.float32)


def _kind(architecture: str) -> gguf.MODEL_ARCH:
    return next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)


def _laid_out(family: GgufFamily, config: Any, stored: str, rows: Array) -> Array:
    """As llama.cpp's converter lays a tensor out."""
    module, suffix = stored.split(".")[-2:]
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    if family.pairs and module in heads:
        return rows[_pairs_of_rows(rows.shape[0], getattr(config, heads[module]))]
    if family.one_more and module.endswith("norm") and suffix == "weight":
        return rows + 1
    if family.transposed and rows.ndim > 1 and module.startswith(("attn", "ffn")):
        return rows.T
    if family.by_heads and module == "attn_qkv":
        size = rows.shape[0] // config.num_attention_heads // 3
        heads_of = [rows[start : start + 3 * size] for start in range(0, len(rows), 3 * size)]
        return np.concatenate([head[part * size : (part + 1) * size] for part in range(3) for head in heads_of])
    return rows


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
    return np.ascontiguousarray(rows[_pairs_of_rows(rows.shape[0], heads)])


def _pairs_of_rows(count: int, heads: int) -> list[int]:
    head_dim = count // heads
    return [
        head * head_dim + half * head_dim // 2 + row
        for head in range(heads)
        for row in range(head_dim // 2)
        for half in (0, 1)
    ]


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
