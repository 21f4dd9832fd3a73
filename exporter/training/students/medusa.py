"""Medusa heads in training.

Cai et al. 2024, "Medusa: Simple LLM inference acceleration framework with multiple decoding heads", section 2.2: of the
two recipes Medusa-1, where the target is frozen. Its output layer is every head's, so a head is its residual blocks
alone, which begin as the identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from pilotfish.exporter.training.student import Student

from .head_files import save_head

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.training.rows import Batch
    from pilotfish.exporter.training.shapes import MedusaShape
    from pilotfish.exporter.training.target import Seen, Target


class _Block(nn.Module):
    """X + silu(W x + b)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] twice."""
        return x + functional.silu(self.linear(x))


class MedusaStudent(Student):
    """Head d guesses the token after the next d + 1 from the state alone. Parameters have the published names."""

    def __init__(self, shape: MedusaShape, target: Target, loss: str) -> None:
        super().__init__(loss, shape.num_heads, shape.decay)
        self._shape, self._target_id = shape, target.checkpoint.id
        for head in range(shape.num_heads):
            blocks = (_Block(target.hidden_size) for _ in range(shape.num_blocks))
            self.add_module(str(head), nn.Sequential(*blocks))

    def guess(self, batch: Batch, seen: Seen, target_head: Tensor, depth: int) -> list[tuple[Tensor, Tensor]]:  # noqa: ARG002
        """Every head on the target's last state."""
        return [(self.get_submodule(str(head))(seen.hidden), target_head) for head in range(min(depth, self.depth))]

    def save(self, folder: Path) -> None:
        """The FasterDecoding layout without output layers of its own."""
        config = {
            "architectures": ["MedusaModel"],
            "medusa_num_heads": self._shape.num_heads,
            "medusa_num_layers": self._shape.num_blocks,
            "base_model_name_or_path": self._target_id,
        }
        save_head(folder, dict(self.state_dict()), config, torch.float16)

    def describe(self) -> str:
        """For the card."""
        shape = self._shape
        return f"Medusa, {shape.num_heads} heads of {shape.num_blocks} residual blocks, the target's output layer"
