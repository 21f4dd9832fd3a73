"""What is trained: a draft, or a head on the target's hidden states, together with its loss.

A guess of depth d at position t is about the target's next-token distribution at position t + lead + d, given the
tokens up to there: what a drafted chain says with its token d + 1 once all before it were accepted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from .losses import Distance, Guess, distance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .acceptance import AcceptanceScores
    from .rows import Batch
    from .target import Seen


class Student(nn.Module, ABC):
    """Base of all kinds. One forward pass with everything in it, so that data-parallel wrappers see one."""

    lead: ClassVar[int] = 1  # heads read the state of a position and the token after it
    taps: tuple[int, ...] = ()  # residual streams of the target that it reads

    def __init__(self, loss: str, depth: int, decay: float) -> None:
        """`depth` guesses are trained, each with `decay` times the weight of the one before."""
        super().__init__()
        self.depth = depth
        self._loss, self._decay = loss, decay

    @abstractmethod
    def guess(self, batch: Batch, seen: Seen, target_head: Tensor, depth: int) -> list[tuple[Tensor, Tensor]]:
        """Up to `depth` guesses at all positions: (hidden [rows, length, size], head [ids, size]) of each."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes weights and configuration in the layout that others read.

        Raises:
            StorageError: the disk is full or not writable.
        """

    @abstractmethod
    def describe(self) -> str:
        """Kind and dimensions, for the card."""

    @property
    def max_depth(self) -> int | None:
        """Longest chain that it can draft; None: any."""
        return self.depth

    @property
    def ids(self) -> Tensor | None:
        """Tokens that the guesses' heads score; None: all."""
        return None

    def merit(self, scores: AcceptanceScores) -> float:
        """What early stopping and the choice of the best weights go by."""
        return scores.sampled_lengths[self.depth - 1]

    def scale_taps(self, sizes: Tensor, *, fresh: bool) -> None:
        """Of a student with taps: sizes [num_taps * hidden] that their columns have, to train on them divided by these.

        A student that is not fresh goes on to compute what it did.
        """
        raise NotImplementedError

    def penalty(self, _state: Tensor, _target_state: Tensor, _weight: Tensor) -> Tensor | None:
        """A further loss of a guess's states [tokens, size] at weighted positions, summed."""
        return None

    def usable(self, batch: Batch) -> Batch:
        """The batch with only those positions scored that a guess can be about."""
        if self.lead == 0:
            return batch
        first = torch.zeros_like(batch.scored)
        if batch.position_ids is None:
            first[:, : self.lead] = True
        else:
            first = batch.position_ids < self.lead
        return batch._replace(scored=batch.scored & ~first)

    def forward(self, batch: Batch, seen: Seen, target_head: Tensor) -> Distance:
        """Distance between guesses and target at the batch's scored positions."""
        scored = batch.scored
        target_hidden = seen.hidden[scored]
        total = sum(self._decay**depth for depth in range(self.depth))
        guesses, penalties, reached = [], [], scored
        for depth, (hidden, head) in enumerate(self.guess(batch, seen, target_head, self.depth)):
            reached = scored & shifted(reached, 1) if depth else scored
            weight = reached[scored].float() * (self._decay**depth / total)
            state = shifted(hidden, self.lead + depth)[scored]
            guesses.append(Guess(state, head, weight))
            penalties.append(self.penalty(state, target_hidden, weight))
        found = distance(self._loss, guesses, target_hidden, target_head, ids=self.ids)
        further = [penalty for penalty in penalties if penalty is not None]
        return found._replace(loss_sum=found.loss_sum + sum(further)) if further else found

    @torch.no_grad()
    def ranks(self, batch: Batch, seen: Seen, target_head: Tensor, tokens: Tensor, depth: int) -> Tensor:
        """Place of each position's next token, given by `tokens` [rows, length], among every guess of it; 0 is first.

        int64 [depth, rows, length], of guesses that do not exist the vocabulary's size.
        """
        vocab = len(target_head)
        places = []
        for index, (hidden, head) in enumerate(self.guess(batch, seen, target_head, depth)):
            state = shifted(hidden, self.lead + index)
            rows = [
                _places(row @ head.to(row.dtype).T, ids, self.ids, vocab)
                for row, ids in zip(state, tokens, strict=True)
            ]
            place = torch.stack(rows)
            place[:, : self.lead + index] = vocab
            places.append(place)
        return torch.stack(places)


def _places(logits: Tensor, tokens: Tensor, ids: Tensor | None, vocab: int) -> Tensor:
    """[length, ids] -> int64 [length]: how many ids score higher than the token, `vocab` if it is not scored."""
    if ids is None:
        found, columns = torch.ones_like(tokens, dtype=torch.bool), tokens
    else:
        columns = torch.searchsorted(ids, tokens).clamp(max=len(ids) - 1)
        found = ids[columns] == tokens
    own = logits.gather(1, columns[:, None])
    return torch.where(found, (logits > own).sum(1), vocab)


def shifted(values: Tensor, places: int) -> Tensor:
    """[rows, length, ...] moved right along the rows; zeros come in from the left. Negative places move left."""
    if places == 0:
        return values
    length = values.shape[1]
    kept = values[:, : length - places] if places > 0 else values[:, -places:]
    sides = (places, 0) if places > 0 else (0, -places)
    padding: Sequence[int] = (*(0, 0) * (values.ndim - 2), *sides)
    moved: Tensor = functional.pad(kept, padding)
    return moved


def trained_state(state: dict[str, Any]) -> dict[str, Tensor]:
    """A state dict's tensors in f32 or integers on the CPU, each once: of tied ones the first name."""
    kept: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in state.items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            kept[name] = tensor.detach().cpu().contiguous()
    return kept
