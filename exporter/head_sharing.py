"""What a head has in common with its target: stored once, in the target's weights file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from .strips import row_spans

if TYPE_CHECKING:
    import torch

    from .heads import HeadCheckpoint, HeadModel, TargetParts
    from .model_export import ExportedModel
    from .weights_file import StoredTensor

_CHUNK_ROWS = 4096  # bounds the f32 copies
_COPIES = {"embed_tokens.weight": "embedding", "shared_head.head.weight": "lm_head"}  # by the end of a tensor's name


def without_copies(checkpoint: HeadCheckpoint, target: TargetParts) -> HeadCheckpoint:
    """The head without those of its matrices that published checkpoints copy from the target, where they are equal."""
    kept = {name: tensor for name, tensor in checkpoint.tensors.items() if not _is_copy(name, tensor, target)}
    return dataclasses.replace(checkpoint, tensors=kept)


def _is_copy(name: str, tensor: torch.Tensor, target: TargetParts) -> bool:
    of = next((part for end, part in _COPIES.items() if name.endswith(end)), None)
    if of is None or tuple(tensor.shape) != (target.vocab_size, target.hidden_size):
        return False
    rows = target.source.read(getattr(target, of))
    spans = row_spans(len(rows), _CHUNK_ROWS)
    return all(np.array_equal(tensor[start:end].float().numpy(), rows[start:end]) for start, end in spans)


def shared_tensors(head: HeadModel, target: ExportedModel) -> dict[str, StoredTensor]:
    """The target's stored tensors that the head's are equal to, by the head's name.

    These are matrices that it borrows whole and in the target's format, and equal rotary tables.
    """
    stored = {tensor.name: tensor for tensor in target.tensors}
    shared = {}
    for weight in head.plan.weights.values():
        if any(source in head.source.tensors for source in weight.sources):
            continue
        for other in target.plan.weights.values():
            if dataclasses.replace(weight, name=other.name) == other:
                shared[weight.name] = stored[other.name]
    for name, table in head.tables.items():
        found = stored.get(name)
        if found is None or found.shape != table.shape:
            continue
        values = np.fromfile(target.weights_path, table.dtype, table.size, offset=found.offset)
        if np.array_equal(values.reshape(table.shape), table):
            shared[name] = found
    return shared
