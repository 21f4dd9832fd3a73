"""Heads on the target's own hidden states: readers of published layouts, and their graphs. One file a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import eagle, medusa, mlp_speculator, mtp, target_state
from .checkpoint import HeadCheckpoint, open_head
from .graph_builder import new_plan
from .head_model import CacheShape, HeadModel
from .tensor_source import TargetParts, TensorSource

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CacheShape", "HeadCheckpoint", "HeadModel", "TargetParts", "build_head", "open_head", "taps_of"]

_TAPS: dict[str, Callable[[HeadCheckpoint, int], tuple[int, ...]]] = {
    "medusa": target_state.taps,
    "mlp_speculator": target_state.taps,
    "eagle": eagle.taps,
    "eagle3": eagle.taps,
    "mtp": mtp.taps,
}


def taps_of(checkpoint: HeadCheckpoint, num_layers: int) -> tuple[int, ...]:
    """The residual streams of a target of `num_layers` layers that the head reads.

    Tap k is the stream into layer k; tap num_layers is the one into the final norm.

    Raises:
        CheckpointError: a tap that the target does not have.
    """
    return _TAPS[checkpoint.kind](checkpoint, num_layers)


def build_head(
    checkpoint: HeadCheckpoint,
    target: TargetParts,
    format_name: str,
    *,
    max_positions: int,
    cache_dtype: str,
    logit_ids: tuple[int, ...] | None = None,
) -> HeadModel:
    """The head's graphs and the plan of their stored tensors.

    logit_ids: the only ids that it is to score, ascending.

    Raises:
        CheckpointError: another hidden size or vocabulary than the target's, or a missing tensor.
        UnsupportedModelError: a variant of the layout that the graphs cannot express.
    """
    source, plan = TensorSource(target, dict(checkpoint.tensors)), new_plan(format_name, logit_ids)
    if checkpoint.kind == "medusa":
        return medusa.build(checkpoint, source, plan)
    if checkpoint.kind == "mlp_speculator":
        return mlp_speculator.build(checkpoint, source, plan)
    if checkpoint.kind == "mtp":
        return mtp.build(checkpoint, source, plan, max_positions, cache_dtype)
    return eagle.build(checkpoint, source, plan, max_positions, cache_dtype)
