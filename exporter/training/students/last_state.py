"""Heads that read the target's last state alone, Medusa's and the MLP speculator, and perhaps further streams of it.

The published ones read no further streams; a matrix of the streams is added to the state. Streams of middle layers know
more of what comes after the next token than the last one does (Pal et al. 2023, "Future Lens: Anticipating subsequent
tokens from a single hidden state", section 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pilotfish.exporter.heads.target_state import STREAMS, TAPS
from pilotfish.exporter.training.student import Student

from .streams import StreamReader, check_taps

if TYPE_CHECKING:
    from pilotfish.exporter.training.target import Seen, Target


class LastStateStudent(Student):
    """Base of both kinds."""

    streams: StreamReader  # where the head has taps

    def __init__(self, loss: str, depth: int, decay: float, taps: tuple[int, ...], target: Target) -> None:
        super().__init__(loss, depth, decay)
        if taps:
            num_layers = target.model.config.num_hidden_layers
            self.taps = check_taps(taps, num_layers, num_layers - 1, "different ones")  # the last state is read anyway
            self.streams = StreamReader(len(taps), target.hidden_size)
            nn.init.zeros_(self.streams.weight)

    def scale_taps(self, sizes: Tensor, *, fresh: bool) -> None:
        """Of the streams' matrix."""
        self.streams.scale(sizes, fresh=fresh)

    def state(self, seen: Seen) -> Tensor:
        """What the head reads, [rows, length, hidden]."""
        return seen.hidden + self.streams(torch.cat(seen.streams, dim=-1)) if self.taps else seen.hidden

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors for the disk, and what config.json says of the taps."""
        tensors = dict(self.state_dict())
        if not self.taps:
            return tensors, {}
        return tensors | {STREAMS: self.streams.stored()}, {TAPS: list(self.taps)}

    def describe_taps(self) -> str:
        """For the card."""
        return f", reads the streams into layers {', '.join(map(str, self.taps))}" if self.taps else ""
