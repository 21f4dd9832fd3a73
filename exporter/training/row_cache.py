"""Keys and values of many sequences written in step, and an attention that reads them without copies.

transformers hands a cache's tensors to an attention function by name; with a mask its own one first repeats every
key and value head for each query head that shares it, which for one new token a row is most of the memory traffic.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATTENTION = "pilotfish_rows"
_WIDTH_STEP = 64  # read widths are multiples: masks stay aligned, and shapes repeat


class RowCache:
    """[rows, key/value heads, positions, head size] a layer; all rows are written at the same positions.

    Stands in for a transformers cache: layers call `update`, nothing else.
    """

    def __init__(self, num_rows: int, num_positions: int, device: torch.device) -> None:
        self._num_rows, self._num_positions = num_rows, -(-num_positions // _WIDTH_STEP) * _WIDTH_STEP
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._first_row = 0  # of the rows that the running pass computes
        self.length = 0  # positions that hold tokens
        self._next = torch.zeros(1, dtype=torch.int64, device=device)  # the same for recorded steps

    @property
    def read_width(self) -> int:
        """Positions that one further token reads, itself included; a mask has to hide those not written yet."""
        return min(self._num_positions, -(-(self.length + 1) // _WIDTH_STEP) * _WIDTH_STEP)

    @property
    def next_position(self) -> Tensor:
        """int64 [1]: where the next token goes, in a tensor that stays where it is."""
        return self._next

    def advance(self, count: int) -> None:
        """So many more positions hold tokens."""
        self.length += count
        self._next += count

    def at_row(self, row: int) -> RowCache:
        """The first pass computes rows from this one on; later passes compute all."""
        self._first_row = row
        return self

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Stores new positions; the first pass reads what it wrote, a further token reads `read_width` positions."""
        if layer == len(self._layers):
            shape = (self._num_rows, keys.shape[1], self._num_positions)
            self._layers.append((keys.new_zeros(*shape, keys.shape[3]), values.new_zeros(*shape, values.shape[3])))
        stored_keys, stored_values = self._layers[layer]
        if self.length == 0:
            rows = slice(self._first_row, self._first_row + keys.shape[0])
            stored_keys[rows, :, : keys.shape[2]] = keys
            stored_values[rows, :, : keys.shape[2]] = values
            return keys, values
        stored_keys.index_copy_(2, self._next, keys)
        stored_values.index_copy_(2, self._next, values)
        return stored_keys[:, :, : self.read_width], stored_values[:, :, : self.read_width]

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self._num_rows = len(rows)
        for layer, (keys, values) in enumerate(self._layers):
            self._layers[layer] = (keys[rows], values[rows])


def cache_argument(decoder: Any) -> str:
    """What a transformers decoder calls its cache: the name changed within version 5."""
    return "cache" if "cache" in inspect.signature(decoder.forward).parameters else "past_key_values"


@contextmanager
def reads_rows(model: Any) -> Iterator[None]:
    """Within it the model attends by `rows_attention`."""
    AttentionInterface.register(_ATTENTION, rows_attention)
    before = model.config._attn_implementation  # noqa: SLF001  # transformers has no public name for it
    model.set_attn_implementation(_ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def rows_attention(  # called by transformers
    _module: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float | None = None, **_: Any
) -> tuple[Tensor, None]:
    """Attention as transformers' interface defines it; `mask` is additive and the same for all heads.

    query [rows, heads, length, size], keys and values [rows, key/value heads, positions, size] ->
    [rows, length, heads, size].
    """
    rows, heads, length, _size = query.shape
    groups = heads // keys.shape[1]
    if length == 1:  # query heads that share keys become query positions
        packed = query.reshape(rows, keys.shape[1], groups, -1)
        out = functional.scaled_dot_product_attention(packed, keys, values, attn_mask=mask, scale=scaling)
        return out.reshape(rows, 1, heads, -1), None
    keys, values = (tensor.repeat_interleave(groups, dim=1) for tensor in (keys, values))
    out = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def hidden_by_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Boolean [rows, queries, positions] -> additive mask [rows, 1, queries, positions]."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]
