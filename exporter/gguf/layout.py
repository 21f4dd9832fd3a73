"""Where each parameter of transformers' model lies in a GGUF file, and in which order its rows are there.

The names are of the gguf package's own tables. What differs beyond names is in the row of the family.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

    from pilotfish.exporter.buffers import Buffers

    from .families import Family
    from .parse import GgufTensor

Array = np.ndarray[Any, np.dtype[Any]]
_FUSED, _PARTS = "attn_qkv", ("attn_q", "attn_k", "attn_v")  # in the order of their rows
_NAMED_AS = {"mistral": "llama"}  # an architecture that the gguf package has no names for
_QUERY_KEY_VALUE = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A parameter's rows: a tensor of the file, or some rows of one."""

    tensor: GgufTensor
    num_heads: int = 0  # whose rows are stored as pairs; 0: rows lie as in transformers
    by_heads: int = 0  # whose query, key and value lie together in transformers
    transposed: bool = False
    offset: float = 0.0  # of the stored values

    @property
    def shape(self) -> tuple[int, ...]:
        """In transformers."""
        return self.tensor.shape[::-1] if self.transposed else self.tensor.shape

    def ordered(self, rows: Array) -> Array:
        """Rows of the file in transformers' order."""
        if self.num_heads:
            pairs = rows.reshape(self.num_heads, -1, 2, *rows.shape[1:])
            return np.asarray(pairs.swapaxes(1, 2).reshape(rows.shape))
        if self.by_heads:
            heads = rows.reshape(_QUERY_KEY_VALUE, self.by_heads, -1, *rows.shape[1:])
            return np.asarray(heads.swapaxes(0, 1).reshape(rows.shape))
        return rows

    def values(self, buffers: Buffers) -> Array:
        """As transformers has them, f32."""
        rows = self.ordered(self.tensor.values(buffers))
        if self.offset:
            rows = rows - np.float32(self.offset)
        return rows.T if self.transposed else rows


def find_places(
    tensors: Mapping[str, GgufTensor], architecture: str, family: Family, model: PreTrainedModel
) -> dict[str, Place]:
    """By the names of the model's state dict; tensors of the file that none of these is made of keep their own."""
    places: dict[str, Place] = {}
    used = set[str]()
    names = _stored_names(architecture, family, model)
    for name, stored in names.items():
        found = tensors.get(stored) or _part_of_fused(tensors, stored, model.config)
        if found is not None:
            used.add(found.name)
            part = _part_of_stack(found, name, family)
            places[name] = _placed(part, stored, family, model.config)
    used |= _left_by_sharing(model.config)
    return places | {name: Place(tensor) for name, tensor in tensors.items() if name not in used}


def _left_by_sharing(config: Any) -> set[str]:
    """Tensors that a file has of layers which use the keys and values of others."""
    count = config.num_hidden_layers
    shared = range(count - (getattr(config, "num_kv_shared_layers", 0) or 0), count)
    return {f"blk.{layer}.{module}.weight" for layer in shared for module in ("attn_k", "attn_v", "attn_k_norm")}


def _stored_names(architecture: str, family: Family, model: PreTrainedModel) -> dict[str, str]:
    named_as = _NAMED_AS.get(architecture, architecture)
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == named_as)
    table = gguf.get_tensor_name_map(kind, model.config.num_hidden_layers)
    names = {}
    for name in model.state_dict():
        stem, _, suffix = name.rpartition(".")
        for module, stacked in family.stacked.items():
            before, found, _ = stem.partition(f".{module}.")
            stem = f"{before}.{stacked}" if found else stem
        if suffix not in ("weight", "bias"):  # a tensor that no module of torch's own has
            stem, suffix = name, "weight"
        stored = table.get_name(stem) or table.get_name(stem.removeprefix("transformer."))
        if stored is not None:
            names[name] = f"{stored}.{suffix}"
    return names


def _part_of_fused(tensors: Mapping[str, GgufTensor], stored: str, config: Any) -> GgufTensor | None:
    """Query, key or value where the file has one matrix of the three."""
    stem, _, suffix = stored.rpartition(".")
    prefix, _, part = stem.rpartition(".")
    fused = tensors.get(f"{prefix}.{_FUSED}.{suffix}")
    if fused is None or part not in _PARTS:
        return None
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    sizes = [count * head_dim for count in (heads, kv_heads, kv_heads)]
    index = _PARTS.index(part)
    return rows_of(fused, sum(sizes[:index]), sizes[index])


def rows_of(tensor: GgufTensor, start: int, count: int) -> GgufTensor:
    """Some rows of a matrix, or elements of a vector of floats."""
    if len(tensor.shape) > 1:
        return replace(tensor, shape=(count, *tensor.shape[1:]), offset=tensor.offset + start * tensor.row_bytes)
    size = tensor.row_bytes // tensor.shape[0]
    return replace(tensor, shape=(count,), offset=tensor.offset + start * size)


def _part_of_stack(tensor: GgufTensor, name: str, family: Family) -> GgufTensor:
    module = next((module for module in family.stacked if f".{module}." in name), None)
    if module is None:
        return tensor
    number, size = int(name.split(f".{module}.")[1].split(".", maxsplit=1)[0]), tensor.num_rows // tensor.shape[0]
    return replace(rows_of(tensor, number * size, size), shape=tensor.shape[1:])


def _placed(tensor: GgufTensor, stored: str, family: Family, config: Any) -> Place:
    stem, _, suffix = stored.rpartition(".")
    module = stem.rpartition(".")[2]
    heads = "num_attention_heads" if module == "attn_q" else "num_key_value_heads"
    return Place(
        tensor,
        num_heads=getattr(config, heads) if module in family.pairs else 0,
        by_heads=config.num_attention_heads if family.qkv_by_heads and module == _FUSED else 0,
        transposed=module in family.transposed and suffix == "weight",
        offset=family.norm_offset if module.endswith("norm") and suffix == "weight" else 0.0,
    )
