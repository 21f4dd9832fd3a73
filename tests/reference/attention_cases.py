"""Passes of PagedAttention with random content, and how to run them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from reference.paged_attention import LARGEST, OFFSET, Attention, Pass, rotary_tables, scaled_views
from reference.run_op import OpRunner

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_POSITIONS = 2048


@dataclass(frozen=True, slots=True)
class Sequence:
    """Committed tokens, rows of this pass, and for a tree the parent of each row (-1: the context)."""

    context: int
    rows: int
    parents: tuple[int, ...] | None = None


class Cache:
    """A pool with shuffled blocks and committed random keys and values."""

    def __init__(
        self, attention: Attention, sequences: list[Sequence], *, block_size: int, dtype: type, seed: int
    ) -> None:
        self.rng = np.random.default_rng(seed)
        need = [-(-(s.context + s.rows) // block_size) for s in sequences]
        ids = self.rng.permutation(sum(need) + 3).astype(np.int32)
        self.table = np.full((len(sequences), max(1, *need)), -1, np.int32)
        for seq, count in enumerate(need):
            self.table[seq, :count], ids = ids[:count], ids[count:]
        shape = (sum(need) + 3, block_size, attention.num_kv_heads, attention.head_dim)
        self.keys, self.values = self._pool(shape, dtype), self._pool(shape, dtype)

    def _pool(self, shape: tuple[int, ...], dtype: type) -> NDArray[np.generic]:
        if dtype is not np.uint8:
            return self.rng.standard_normal(shape).astype(dtype)
        pool = np.zeros((*shape[:-1], shape[-1] + 2), dtype)
        elements, scales = scaled_views(pool)
        elements[:] = self.rng.integers(-LARGEST, LARGEST, shape, endpoint=True) + OFFSET
        scales[:] = self.rng.uniform(0.6 / LARGEST, 4 / LARGEST, shape[:-1])
        return pool


def make_pass(
    attention: Attention,
    sequences: list[Sequence],
    *,
    block_size: int = 16,
    dtype: type = np.float16,
    norm: bool = False,
    alibi: bool = False,
    biases: bool = False,
    sinks: bool = False,
    value_norm: bool = False,
    seed: int = 0,
) -> Pass:
    cache = Cache(attention, sequences, block_size=block_size, dtype=dtype, seed=seed)
    num_rows = sum(s.rows for s in sequences)
    width = attention.num_given * attention.head_dim
    cos, sin = rotary_tables(MAX_POSITIONS, attention.rotary_dim)
    is_tree = any(s.parents is not None for s in sequences)
    positions, masks = [], []
    for s in sequences:
        seq_positions, seq_masks = tree_rows(s)
        positions += seq_positions
        masks += seq_masks
    weight = cache.rng.uniform(0.5, 1.5, (2, attention.head_dim)).astype(np.float32)
    return Pass(
        qkv=cache.rng.standard_normal((num_rows, width)).astype(np.float32),
        position_ids=np.array(positions, np.int32),
        seq_starts=np.cumsum([0, *(s.rows for s in sequences)]).astype(np.int32),
        context_lens=np.array([s.context for s in sequences], np.int32),
        block_table=cache.table,
        tree_mask=np.array(masks if is_tree else [], np.uint64),
        cos=cos,
        sin=sin,
        key_cache=cache.keys,
        value_cache=cache.values,
        q_norm=weight[0].copy() if norm else None,
        k_norm=weight[1].copy() if norm and not attention.shared_kv else None,
        slopes=cache.rng.uniform(0.01, 0.7, attention.num_heads).astype(np.float32) if alibi else None,
        key_biases=_biases(cache, (MAX_POSITIONS, attention.num_heads)) if biases else None,
        sinks=_biases(cache, (attention.num_heads,)) if sinks else None,
        v_norm=_biases(cache, (attention.head_dim,)) if value_norm else None,
    )


def _biases(cache: Cache, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return cache.rng.uniform(-2, 4, shape).astype(np.float32)


def tree_rows(sequence: Sequence) -> tuple[list[int], list[int]]:
    """Positions and masks of a sequence's rows; without parents a chain."""
    parents = sequence.parents if sequence.parents is not None else tuple(range(-1, sequence.rows - 1))
    positions: list[int] = []
    masks: list[int] = []
    for row, parent in enumerate(parents):
        positions.append(sequence.context if parent < 0 else positions[parent] + 1)
        masks.append((1 << row if row < 64 else 0) | (0 if parent < 0 else masks[parent]))
    return positions, masks


def as_inputs(inputs: Pass) -> dict[str, NDArray[np.generic] | None]:
    return {field.name: getattr(inputs, field.name) for field in fields(inputs)}


def runner(library: str, attention: Attention, inputs: Pass, *, threads: int = 2) -> OpRunner:
    return OpRunner(library, "PagedAttention", as_inputs(inputs), asdict(attention), threads=threads)
