"""Heads on the target's own hidden states: readers of published layouts, and their graphs. One file a kind."""

from __future__ import annotations

from .checkpoint import HeadCheckpoint, open_head
from .eagle import num_own_ids
from .graph_builder import new_plan
from .head_model import CacheOptions, CacheShape, HeadModel
from .kinds import KINDS
from .tensor_source import TargetParts, TensorSource

__all__ = [
    "KINDS",
    "CacheOptions",
    "CacheShape",
    "HeadCheckpoint",
    "HeadModel",
    "TargetParts",
    "build_head",
    "num_own_ids",
    "open_head",
    "taps_of",
]


def taps_of(checkpoint: HeadCheckpoint, num_layers: int) -> tuple[int, ...]:
    """The residual streams of a target of `num_layers` layers that the head reads.

    Tap k is the stream into layer k; tap num_layers is the one into the final norm.

    Raises:
        CheckpointError: a tap that the target does not have.
    """
    return KINDS[checkpoint.kind].taps(checkpoint, num_layers)


def build_head(
    checkpoint: HeadCheckpoint,
    target: TargetParts,
    format_name: str,
    cache: CacheOptions,
    *,
    logit_ids: tuple[int, ...] | None = None,
) -> HeadModel:
    """The head's graphs and the plan of their stored tensors.

    logit_ids: the only ids that it is to score, ascending.

    Raises:
        CheckpointError: another hidden size or vocabulary than the target's, or a missing tensor.
        UnsupportedModelError: a variant of the layout that the graphs cannot express.
    """
    source, plan = TensorSource(target, dict(checkpoint.tensors)), new_plan(format_name, logit_ids)
    return KINDS[checkpoint.kind].build(checkpoint, source, plan, cache)
