"""How many drafted tokens a target would accept, from teacher-forced distributions. Knows nothing about models.

beta(i) = sum over tokens of min(p, q) is the chance that lossless speculative sampling accepts a token drafted at
position i (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", theorem 3.5); greedy
decoding accepts where both argmax agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .losses import Distance

CHAIN_DEPTH = 8


@dataclass(frozen=True, slots=True)
class AcceptanceScores:
    """Acceptance over some text; entry k - 1 of the tuples is about the k-th token of a drafted chain."""

    num_tokens: int
    sampled: float  # mean of sum min(p, q) at temperature 1
    greedy: float  # share of positions where both argmax agree
    sampled_by_depth: tuple[float, ...]  # P(token k is accepted | the ones before it were)
    greedy_by_depth: tuple[float, ...]
    sampled_lengths: tuple[float, ...]  # expected tokens a round of a chain of k, the target's own token included
    greedy_lengths: tuple[float, ...]


class AcceptanceCounts:
    """Sums over batches; `vector` is what processes add up."""

    def __init__(self, device: torch.device) -> None:
        # [loss, tokens, then CHAIN_DEPTH windows, sampled products and greedy products]
        self.vector = torch.zeros(2 + 3 * CHAIN_DEPTH, dtype=torch.float64, device=device)

    def add(self, scored: Tensor, distance: Distance) -> None:
        """Counts a batch; scored is bool [rows, length], and `distance` is of its true positions in order.

        Guess k of `distance` is what a chain says of a position that it reaches with its k-th token, from 0.
        """
        windows = scored.double()
        self.vector[0] += distance.loss_sum.detach().double()
        self.vector[1] += windows.sum()
        products = [windows] * 3
        for depth in range(min(CHAIN_DEPTH, len(distance.overlap))):
            values = (distance.overlap[depth], distance.agrees[depth])
            chains = [torch.zeros_like(windows).masked_scatter_(scored, value.double()) for value in values]
            length = scored.shape[1] - depth  # every window is extended by one position to the right
            products = [
                product[:, :length] * step[:, depth:]
                for product, step in zip(products, [windows, *chains], strict=True)
            ]
            for kind, product in enumerate(products):
                self.vector[2 + kind * CHAIN_DEPTH + depth] += product.sum()

    @property
    def mean_loss(self) -> float:
        """Nats a token."""
        return float(self.vector[0] / self.vector[1].clamp(min=1))

    def scores(self) -> AcceptanceScores:
        """The sums as rates; depths without a guess, or that no text was long enough for, count as never accepted."""
        windows, sampled, greedy = self.vector[2:].reshape(3, CHAIN_DEPTH).cpu()
        reach = [(kind / windows.clamp(min=1)).tolist() for kind in (sampled, greedy)]
        by_depth = [_conditional(chain) for chain in reach]
        lengths = [tuple(1 + sum(chain[: depth + 1]) for depth in range(CHAIN_DEPTH)) for chain in reach]
        return AcceptanceScores(
            int(windows[0]), reach[0][0], reach[1][0], by_depth[0], by_depth[1], lengths[0], lengths[1]
        )


def _conditional(reach: list[float]) -> tuple[float, ...]:
    before = [1.0, *reach[:-1]]
    return tuple(now / earlier if earlier else 0.0 for now, earlier in zip(reach, before, strict=True))
