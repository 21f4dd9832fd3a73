"""The operator PagedAttention, written from GRAPH.md in plain numpy, one row and one head at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Attention:
    """The operator's attributes."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    interleaved: int = 0
    scale: float = 0.125
    sliding_window: int = 0
    softcap: float = 0.0
    norm_epsilon: float = 1e-6
    shared_kv: int = 0

    @property
    def num_given(self) -> int:
        """Heads in a row of the input."""
        return self.num_heads + (0 if self.shared_kv else 2 * self.num_kv_heads)


@dataclass(slots=True)
class Pass:
    """The operator's inputs; the caches are written to."""

    qkv: NDArray[np.float32]
    position_ids: NDArray[np.int32]
    seq_starts: NDArray[np.int32]
    context_lens: NDArray[np.int32]
    block_table: NDArray[np.int32]
    tree_mask: NDArray[np.uint64]
    cos: NDArray[np.float32]
    sin: NDArray[np.float32]
    key_cache: NDArray[np.generic]
    value_cache: NDArray[np.generic]
    q_norm: NDArray[np.float32] | None = None
    k_norm: NDArray[np.float32] | None = None
    slopes: NDArray[np.float32] | None = None
    key_biases: NDArray[np.float32] | None = None
    sinks: NDArray[np.float32] | None = None
    v_norm: NDArray[np.float32] | None = None


def rotary_tables(num_positions: int, rotary_dim: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    frequencies = 10000.0 ** (-np.arange(0, rotary_dim, 2) / max(rotary_dim, 1))
    angles = np.arange(num_positions)[:, None] * frequencies[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _norm(heads: NDArray[np.float64], weight: NDArray[np.float32] | None, epsilon: float) -> NDArray[np.float64]:
    if weight is None:
        return heads
    return heads / np.sqrt((heads**2).mean(axis=-1, keepdims=True) + epsilon) * weight


def _rotate(
    heads: NDArray[np.float64], attention: Attention, cos: NDArray[np.float32], sin: NDArray[np.float32]
) -> None:
    rotary = attention.rotary_dim
    if attention.interleaved:
        first, second = slice(0, rotary, 2), slice(1, rotary, 2)
    else:
        first, second = slice(0, rotary // 2), slice(rotary // 2, rotary)
    a, b = heads[:, first].copy(), heads[:, second].copy()
    heads[:, first], heads[:, second] = a * cos - b * sin, b * cos + a * sin


def paged_attention(attention: Attention, inputs: Pass) -> NDArray[np.float64]:
    """[num_tokens, num_heads * head_dim]; keys and values are written to the caches first."""
    heads, kv_heads, dim = attention.num_heads, attention.num_kv_heads, attention.head_dim
    num_tokens = inputs.qkv.shape[0]
    qkv = inputs.qkv.astype(np.float64).reshape(num_tokens, attention.num_given, dim)
    queries = np.zeros((num_tokens, heads, dim))
    slots: list[tuple[int, int]] = []
    for seq, row in _rows(inputs):
        position = inputs.position_ids[row]
        q = _norm(qkv[row, :heads], inputs.q_norm, attention.norm_epsilon).copy()
        _rotate(q, attention, inputs.cos[position], inputs.sin[position])
        queries[row] = q
        if attention.shared_kv:
            continue
        k = _norm(qkv[row, heads : heads + kv_heads], inputs.k_norm, attention.norm_epsilon).copy()
        _rotate(k, attention, inputs.cos[position], inputs.sin[position])
        slots.append(_slot(inputs, seq, int(inputs.context_lens[seq]) + _index(inputs, seq, row)))
        _write(inputs.key_cache, slots[-1], k)
        v = _norm(qkv[row, heads + kv_heads :], inputs.v_norm, attention.norm_epsilon)
        _write(inputs.value_cache, slots[-1], v)
    out = np.zeros((num_tokens, heads, dim))
    for seq, row in _rows(inputs):
        seen = [_slot(inputs, seq, slot) for slot in _visible(attention, inputs, seq, row)]
        for head in range(heads):
            kv = head // (heads // kv_heads)
            keys = np.array([_read(inputs.key_cache, slot, kv) for slot in seen])
            values = np.array([_read(inputs.value_cache, slot, kv) for slot in seen])
            scores = keys @ queries[row, head] * attention.scale
            if attention.softcap:
                scores = attention.softcap * np.tanh(scores / attention.softcap)
            if inputs.slopes is not None:
                scores = scores - inputs.slopes[head] * np.arange(len(seen))[::-1]
            if inputs.key_biases is not None:
                scores = scores + inputs.key_biases[: len(seen), head]
            weights = np.exp(scores - scores.max())
            sink = 0.0 if inputs.sinks is None else np.exp(inputs.sinks[head] - scores.max())
            out[row, head] = weights @ values / (weights.sum() + sink)
    return out.reshape(num_tokens, -1)


LARGEST = 127  # what the largest magnitude of a head becomes in a cache of bytes, which has scales
OFFSET = 128  # of its bytes


def scaled_views(cache: NDArray[np.generic]) -> tuple[NDArray[np.generic], NDArray[np.float16]]:
    """Elements [num_blocks, block_size, num_kv_heads, head_dim] and scales of a cache that has some, as views."""
    num_blocks, block_size, kv_heads, width = cache.shape
    blocks = cache.reshape(num_blocks, -1)
    num_bytes = block_size * kv_heads * (width - 2)
    elements = blocks[:, :num_bytes].reshape(num_blocks, block_size, kv_heads, width - 2)
    return elements, blocks[:, num_bytes:].view(np.float16).reshape(num_blocks, block_size, kv_heads)


def _write(cache: NDArray[np.generic], slot: tuple[int, int], heads: NDArray[np.float64]) -> None:
    if cache.dtype != np.uint8:
        cache[slot] = heads
        return
    elements, scales = scaled_views(cache)
    heads = heads.astype(np.float32)
    scale = (np.abs(heads).max(axis=1) / np.float32(LARGEST)).astype(np.float16)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale > 0, np.float32(1) / scale.astype(np.float32), np.float32(0))
    elements[slot] = np.rint(np.clip(heads * inverse[:, None], -LARGEST, LARGEST)) + OFFSET
    scales[slot] = scale


def _read(cache: NDArray[np.generic], slot: tuple[int, int], kv_head: int) -> NDArray[np.float64]:
    if cache.dtype != np.uint8:
        return cache[slot][kv_head].astype(np.float64)
    elements, scales = scaled_views(cache)
    return (elements[slot][kv_head].astype(np.float64) - OFFSET) * float(scales[slot][kv_head])


def _rows(inputs: Pass) -> list[tuple[int, int]]:
    starts = inputs.seq_starts
    return [(seq, row) for seq in range(len(starts) - 1) for row in range(starts[seq], starts[seq + 1])]


def _slot(inputs: Pass, seq: int, slot: int) -> tuple[int, int]:
    block_size = inputs.key_cache.shape[1]
    return int(inputs.block_table[seq, slot // block_size]), slot % block_size


def _index(inputs: Pass, seq: int, row: int) -> int:
    """Which slot behind the context a row is written to: its own bit of the mask, the highest one."""
    if len(inputs.tree_mask):
        return int(inputs.tree_mask[row]).bit_length() - 1
    return row - int(inputs.seq_starts[seq])


def _visible(attention: Attention, inputs: Pass, seq: int, row: int) -> list[int]:
    """Slots that a row sees, in order. A committed slot's position is its number; a mask is a path down to the row."""
    context, position = int(inputs.context_lens[seq]), int(inputs.position_ids[row])
    oldest = position - attention.sliding_window + 1 if attention.sliding_window else 0
    slots = [slot for slot in range(context) if slot >= oldest]
    if len(inputs.tree_mask):
        path = [bit for bit in range(64) if int(inputs.tree_mask[row]) >> bit & 1]
    else:
        path = list(range(_index(inputs, seq, row) + 1))
    positions = range(position - len(path) + 1, position + 1)
    return slots + [context + bit for bit, seen in zip(path, positions, strict=True) if seen >= oldest]
