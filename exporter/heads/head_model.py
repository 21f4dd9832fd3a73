"""What the reader of a head kind makes of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

    from pilotfish.exporter.passes import Plan

    from .tensor_source import TensorSource

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The cache of a head that has a decoder layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """What a head with a decoder layer is to have as its cache."""

    max_positions: int
    dtype: str  # a key of `contract.CACHE_TYPES`


@dataclass(frozen=True, slots=True)
class HeadModel:
    """A head as graphs over one plan of stored tensors."""

    kind: str
    taps: tuple[int, ...]  # residual streams of the target that it reads, in order
    num_predictions: int  # tokens a round can draft in depth; 0: as many as the caller asks for
    state_size: int  # columns of what its graphs pass on to each other
    num_logits: int
    logit_ids: tuple[int, ...] | None  # token of each logit, ascending; None: logit j is about token j
    cache: CacheShape | None
    graphs: dict[str, tuple[ir.Model, Plan]]  # by role, in the order they run
    plan: Plan
    source: TensorSource
    tables: dict[str, Array] = field(default_factory=dict)
