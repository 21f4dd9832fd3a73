"""What a head's configuration says, beside what a tensor's shape says of the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .checkpoint import HeadCheckpoint

Size = tuple[str, int, str, int]  # setting, its value, tensor, the value by that
_MATRIX = 2  # axes


def rows(checkpoint: HeadCheckpoint, key: str, name: str) -> Iterator[Size]:
    """A setting that is a tensor's number of rows."""
    if name in checkpoint.tensors:
        yield from compared(checkpoint, key, name, int(checkpoint.tensors[name].shape[0]))


def columns(checkpoint: HeadCheckpoint, key: str, name: str) -> Iterator[Size]:
    """A setting that is a matrix's number of columns."""
    if name in checkpoint.tensors and checkpoint.tensors[name].ndim == _MATRIX:
        yield from compared(checkpoint, key, name, int(checkpoint.tensors[name].shape[1]))


def compared(checkpoint: HeadCheckpoint, key: str, name: str, found: int) -> Iterator[Size]:
    """A setting, where there is one, with what was found of it."""
    if checkpoint.config.get(key) is not None:
        yield key, checkpoint.config[key], name, found


def layer_sizes(checkpoint: HeadCheckpoint, prefix: str) -> Iterator[Size]:
    """Settings of a decoder layer, by those of its tensors whose names begin with `prefix`."""
    for name in sorted(checkpoint.tensors):
        if name.startswith(prefix):
            yield from _layer_size(checkpoint, name, name.partition("self_attn.")[2] or name.partition("mlp.")[2])


def _layer_size(checkpoint: HeadCheckpoint, name: str, part: str) -> Iterator[Size]:
    """A tensor of a decoder layer; part: its name within attention or MLP."""
    config = checkpoint.config
    if part == "gate_proj.weight":
        yield from rows(checkpoint, "intermediate_size", name)
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if not (is_whole(heads) and is_whole(hidden)):
        return
    size = config.get("head_dim") or hidden // heads
    key = {
        "q_proj.weight": ("num_attention_heads", heads),
        "k_proj.weight": ("num_key_value_heads", config.get("num_key_value_heads") or heads),
    }.get(part)
    if key is not None and (checkpoint.kind, part) != ("mtp", "q_proj.weight"):  # it may have an output gate
        yield f"{key[0]} * head_dim", key[1] * size, name, int(checkpoint.tensors[name].shape[0])
    if part in ("q_norm.weight", "k_norm.weight"):
        yield "head_dim", size, name, int(checkpoint.tensors[name].shape[0])


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a setting is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)
