"""Text for the next draft of several: only positions where the drafts before it do not say what the target says.

Miao et al. 2024, "SpecInfer: Accelerating large language model serving with tree-based speculative inference and
verification", section 3.1: drafts that are merged into one tree are worth more when each covers what the others miss.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pilotfish.exporter.files import sha256_of

from .rows import Row, TokenRows, existing_rows, write_rows
from .target import last_hidden, output_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from transformers import LlamaForCausalLM

    from .rows import Batch
    from .target import Target

_TOKENS_TOGETHER = 1 << 14


def missed_rows(
    rows: TokenRows,
    target: Target,
    drafts: Sequence[tuple[Path, LlamaForCausalLM]],
    folder: Path,
    *,
    advance: Callable[[int], None],
) -> TokenRows:
    """The same rows, of their scored positions only those whose likeliest next token none of the drafts names.

    Made once, then read again. `advance` counts tokens.

    Raises:
        StorageError: the disk is full.
    """
    files = [sha256_of(path / "model.safetensors") for path, _ in drafts]
    fingerprint = hashlib.sha256("\0".join([rows.header.fingerprint, *files]).encode()).hexdigest()
    found = existing_rows(folder, fingerprint)
    if found is not None:
        return found
    models = [draft for _, draft in drafts]
    return write_rows(
        folder, _missed(rows, target, models, advance), rows.header.length, target.vocab_size, fingerprint
    )


@torch.no_grad()
def _missed(
    rows: TokenRows, target: Target, drafts: Sequence[LlamaForCausalLM], advance: Callable[[int], None]
) -> Iterator[Row]:
    length, device = rows.header.length, target.model.device
    together = max(1, _TOKENS_TOGETHER // length)
    for start in range(0, len(rows), together):
        batch = rows.batch(np.arange(start, min(start + together, len(rows))), device)
        wanted = _likeliest(target.look(batch.token_ids, batch.position_ids).hidden, target.head)
        missed = batch.scored
        for draft in drafts:
            hidden = last_hidden(draft, batch.token_ids, batch.position_ids)
            missed &= _likeliest(hidden, output_weight(draft)) != wanted
        yield from _rows_of(batch, missed)
        advance(batch.token_ids.numel())


def _likeliest(hidden: Tensor, head: Tensor) -> Tensor:
    """[rows, length, size] -> int64 [rows, length], one row of logits in memory at a time."""
    return torch.stack([(row @ head.T).argmax(-1) for row in hidden])


def _rows_of(batch: Batch, scored: Tensor) -> Iterator[Row]:
    positions = batch.position_ids
    if positions is None:
        positions = torch.arange(scored.shape[1], device=scored.device).expand_as(scored)
    columns = (batch.token_ids, positions, scored)
    for tokens, places, kept in zip(*(column.cpu().numpy() for column in columns), strict=True):
        yield Row(tokens, places, kept)
