"""What there is to say about a kind of head, once: each kind's file makes a HeadKind, and `kinds` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from pilotfish.exporter.passes import Plan

    from .checkpoint import HeadCheckpoint
    from .config_sizes import Size
    from .head_model import CacheOptions, HeadModel
    from .tensor_source import TensorSource
    from .torch_heads import TorchHead

    Array = NDArray[np.float32]


class HeadRun(Protocol):
    """The exported graphs of a head, to be run over a text of the parity check."""

    @property
    def num_predictions(self) -> int:
        """Outputs of a head without a cache."""

    @property
    def streams(self) -> Mapping[str, Array]:
        """The target's, f32 [num_tokens, hidden], by the names that they have in the graphs."""

    def rows(self, role: str, inputs: Mapping[str, NDArray[np.generic]], outputs: list[str]) -> list[Array]:
        """Outputs of a graph whose rows do not know each other."""

    def step(self, role: str, ids: list[int], inputs: Mapping[str, Array]) -> Array:
        """Logits of a graph with a cache, after each of the ids."""


@dataclass(frozen=True, slots=True)
class HeadKind:
    """A kind of head. Functions take its checkpoint first and raise as `open_head` and `build_head` say."""

    name: str  # in manifests
    title: str  # in messages, of many
    tensor: re.Pattern[str]  # begins a tensor's name that only this kind has
    prefix: str | None  # of all tensors' names, in some releases
    files: tuple[str, ...]  # that its weights are in, beside the usual ones
    words: tuple[str, ...]  # that "architectures" or "model_type" of its config.json hold, lower case
    counts: tuple[str, ...]  # settings of its own that are whole numbers from 1
    counts_from_zero: tuple[str, ...]
    sizes: Callable[[HeadCheckpoint], Iterator[Size]]  # what both the configuration and a tensor say
    taps: Callable[[HeadCheckpoint, int], tuple[int, ...]]  # see `taps_of`
    build: Callable[[HeadCheckpoint, TensorSource, Plan, CacheOptions], HeadModel]
    run: Callable[[HeadRun, list[int]], Array]  # logits of all its outputs, see TorchHead.logits
    torch_logits: Callable[[TorchHead, Mapping[int, Tensor], Tensor], Tensor]  # the same by torch, for comparison
