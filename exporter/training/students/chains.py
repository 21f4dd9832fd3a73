"""Chains of guesses in training: where they begin, and the attention of their steps.

A chain that begins at position t attends to the text's states up to t and to its own ones after it. Chains begin only
where their first guess is scored, so that a prompt costs keys and values, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from pilotfish.exporter.training.student import shifted

if TYPE_CHECKING:
    from pilotfish.exporter.training.rows import Batch

_ALIGNED = 16  # attention kernels want masks in whole vectors


class Chains:
    """The chains of a batch side by side, and the keys and values that their steps see."""

    def __init__(self, batch: Batch, depth: int) -> None:
        begins = shifted(batch.scored, -1)
        self._shape = begins.shape
        self._rows, self._starts = begins.nonzero(as_tuple=True)
        self._columns = (begins.cumsum(1) - 1)[self._rows, self._starts]  # among the chains of its row
        self._width = _up(int(begins.sum(1).max()))
        self.positions = positions_of(batch)[self._rows if batch.position_ids is not None else 0, self._starts]
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._hidden = self._mask(batch, depth)

    def gather(self, values: Tensor) -> Tensor:
        """[rows, length, ...] -> [chains, ...]."""
        return values[self._rows, self._starts]

    def scatter(self, values: Tensor) -> Tensor:
        """[chains, ...] -> [rows, length, ...], zero where no chain begins."""
        return self._spread(values, self._starts, self._shape[1])

    def begin(self, keys: Tensor, values: Tensor) -> None:
        """The text's own, [rows, length, key/value heads, size]."""
        room = _up(self._shape[1]) - self._shape[1]
        for memory, first in ((self._keys, keys), (self._values, values)):
            memory.append(functional.pad(first, (0, 0, 0, 0, 0, room)).transpose(1, 2))

    def extend(self, keys: Tensor, values: Tensor) -> None:
        """Those of the chains' next step, [chains, key/value heads, size]."""
        for memory, further in ((self._keys, keys), (self._values, values)):
            memory.append(self._spread(further, self._columns, self._width).transpose(1, 2))

    def attend(self, queries: Tensor) -> Tensor:
        """Queries of a step [chains, heads, size] -> [chains, heads * size]."""
        keys, values = torch.cat(self._keys, dim=2), torch.cat(self._values, dim=2)
        spread = self._spread(queries, self._columns, self._width)
        rows, kv_heads, size = len(spread), keys.shape[1], keys.shape[3]
        groups = queries.shape[1] // kv_heads  # query heads that share keys: they become further queries
        packed = spread.view(rows, self._width, kv_heads, groups, size).permute(0, 2, 3, 1, 4).flatten(2, 3)
        mask = self._hidden[..., : keys.shape[2]].to(queries.dtype)
        mask = mask[:, None].expand(-1, groups, -1, -1).flatten(1, 2)[:, None]
        out = functional.scaled_dot_product_attention(packed, keys, values, attn_mask=mask)
        by_column = out.view(rows, kv_heads, groups, self._width, size).permute(0, 3, 1, 2, 4).flatten(2)
        found: Tensor = by_column[self._rows, self._columns]
        return found

    def _spread(self, values: Tensor, columns: Tensor, width: int) -> Tensor:
        empty = values.new_zeros(self._shape[0], width, *values.shape[1:])
        return empty.index_put((self._rows, columns), values)

    def _mask(self, batch: Batch, depth: int) -> Tensor:
        """Added to scores, [rows, width, text and then width for each further step]."""
        length, device = self._shape[1], batch.token_ids.device
        index = torch.arange(length, device=device)
        text = torch.zeros_like(batch.token_ids) if batch.position_ids is None else (batch.position_ids == 0).cumsum(1)
        same = text[self._rows] == text[self._rows, self._starts][:, None]
        seen = functional.pad(same & (index <= self._starts[:, None]), (0, _up(length) - length))
        spread = self._spread(seen, self._columns, self._width)
        spread[:, :, 0] |= ~spread.any(dim=2)  # columns without a chain see something: no row of weights may be empty
        own = torch.eye(self._width, dtype=torch.bool, device=device).expand(len(spread), -1, -1)
        visible = torch.cat([spread, *[own] * (depth - 1)], dim=2)
        return torch.zeros(visible.shape, device=device).masked_fill_(~visible, torch.finfo(torch.bfloat16).min)


def positions_of(batch: Batch) -> Tensor:
    """[rows or 1, length]: positions in their texts."""
    if batch.position_ids is not None:
        return batch.position_ids
    return torch.arange(batch.token_ids.shape[1], device=batch.token_ids.device)[None]


def _up(count: int) -> int:
    return max(1, -(-count // _ALIGNED)) * _ALIGNED
