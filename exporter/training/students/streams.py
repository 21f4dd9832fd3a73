"""What a head makes of its target's residual streams, whose columns have one size while it trains."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pilotfish.exporter.training.errors import TrainingOptionError


class StreamReader(nn.Linear):
    """A matrix over the streams side by side, [..., num_taps * hidden] -> [..., hidden].

    Residual streams grow along the layers, some columns to hundreds of times of others, and what adds to such a state
    learns slowly: it trains on columns divided by their sizes; on disk the matrix reads the streams as they are.
    """

    _sizes: Tensor  # [num_taps * hidden]

    def __init__(self, num_taps: int, hidden: int) -> None:
        super().__init__(num_taps * hidden, hidden, bias=False)
        self.register_buffer("_sizes", torch.ones(num_taps * hidden), persistent=False)

    def forward(self, joined: Tensor) -> Tensor:
        """The streams side by side."""
        return functional.linear(joined / self._sizes.to(joined.dtype), self.weight)

    @torch.no_grad()
    def scale(self, sizes: Tensor, *, fresh: bool) -> None:
        """Takes over the columns' sizes [num_taps * hidden]; a matrix that is not fresh goes on to compute the same."""
        self._sizes.copy_(sizes)
        if not fresh:
            self.weight.mul_(sizes)

    def stored(self) -> Tensor:
        """The matrix for the streams as they are."""
        return self.weight / self._sizes


def check_taps(taps: tuple[int, ...], num_layers: int, last: int, wanted: str) -> tuple[int, ...]:
    """Layers of the target whose input is read, different ones from 0 to `last`; `num_layers` is the final norm.

    Raises:
        TrainingOptionError: others; `wanted` says how many there may be.
    """
    if len(set(taps)) != len(taps) or not all(0 <= tap <= last for tap in taps):
        raise TrainingOptionError(
            f"taps are {', '.join(map(str, taps))}; the target has {num_layers} layers, give {wanted} of 0 to {last}"
        )
    return taps
