"""The tensors a head's graphs are made of: its own, and those it borrows from the target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from pilotfish.exporter.quantise import Quantised
    from pilotfish.exporter.sources import WeightSource

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class TargetParts:
    """What heads borrow: names are of the target's checkpoint."""

    id: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    tokenizer_size: int
    final_norm: str
    norm_epsilon: float
    embedding: str
    lm_head: str
    source: WeightSource
    embedding_format: str  # which the target stores it in
    lm_head_format: str  # which a head that borrows it is to have it in


@dataclass(slots=True)
class TensorSource:
    """A WeightSource over tensors in memory; a name that none of them has is the target's."""

    target: TargetParts
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def borrows(self, name: str) -> bool:
        """Whether a name is the target's: a head's own tensor may have the same one, such as lm_head.weight."""
        return name not in self.tensors

    def read(self, name: str) -> Array:
        """A tensor as f32."""
        if name not in self.tensors:
            return self.target.source.read(name)
        return np.asarray(self.tensors[name].to(torch.float32).numpy())

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """The target's blocks, for what is borrowed."""
        return None if name in self.tensors else self.target.source.read_blocks(name, format_name)

    def stored_type(self, name: str) -> str | None:
        """As torch names it."""
        if name not in self.tensors:
            return self.target.source.stored_type(name)
        return str(self.tensors[name].dtype).removeprefix("torch.")

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an own or borrowed tensor."""
        if name in self.tensors:
            return tuple(self.tensors[name].shape)
        target = self.target
        if name == target.final_norm:
            return (target.hidden_size,)
        return (target.vocab_size, target.hidden_size)
