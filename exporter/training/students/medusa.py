"""Medusa heads in training.

Cai et al. 2024, "Medusa: Simple LLM inference acceleration framework with multiple decoding heads", section 2.2: of the
two recipes Medusa-1, where the target is frozen. Residual blocks begin as the identity, a head's own output layer as
the target's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pilotfish.exporter.heads.target_state import stream_taps
from pilotfish.exporter.training.shapes import MedusaShape

from .head_files import save_head
from .last_state import LastStateStudent

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.heads import HeadCheckpoint
    from pilotfish.exporter.training.rows import Batch
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


class MedusaStudent(LastStateStudent):
    """Head d guesses the token after the next d + 1 from the state alone. Parameters have the published names."""

    def __init__(self, shape: MedusaShape, target: Target, loss: str, _ids: Tensor | None = None) -> None:
        super().__init__(loss, shape.num_heads, shape.decay, shape.taps, target)
        self._shape, self._target_id = shape, target.checkpoint.id
        for head in range(shape.num_heads):
            layers: list[nn.Module] = [_Block(target.hidden_size) for _ in range(shape.num_blocks)]
            if shape.own_output:
                layers.append(_output_layer(target))
            self.add_module(str(head), nn.Sequential(*layers))

    def guess(self, batch: Batch, seen: Seen, target_head: Tensor, depth: int) -> list[tuple[Tensor, Tensor]]:  # noqa: ARG002
        """Every head on the same state."""
        guesses, state = [], self.state(seen)
        for head in range(min(depth, self.depth)):
            layers: Any = self.get_submodule(str(head))
            result = layers[: self._shape.num_blocks](state)
            guesses.append((result, layers[-1].weight if self._shape.own_output else target_head))
        return guesses

    def save(self, folder: Path) -> None:
        """The FasterDecoding layout."""
        config = {
            "architectures": ["MedusaModel"],
            "medusa_num_heads": self._shape.num_heads,
            "medusa_num_layers": self._shape.num_blocks,
            "base_model_name_or_path": self._target_id,
        }
        tensors, taps = self.stored()
        save_head(folder, tensors, config | taps, torch.float16)

    def describe(self) -> str:
        """For the card."""
        shape = self._shape
        output = "output layers of their own" if shape.own_output else "the target's output layer"
        return f"Medusa, {shape.num_heads} heads of {shape.num_blocks} residual blocks, {output}{self.describe_taps()}"


@torch.no_grad()
def _output_layer(target: Target) -> nn.Linear:
    layer = nn.Linear(target.hidden_size, target.vocab_size, bias=False)
    layer.weight.copy_(target.head)
    return layer


def shape_of(checkpoint: HeadCheckpoint) -> MedusaShape:
    """Of a finished head."""
    heads, blocks = (int(checkpoint.setting(f"medusa_num_{part}")) for part in ("heads", "layers"))
    own = f"0.{blocks}.weight" in checkpoint.tensors
    return MedusaShape(heads, blocks, own_output=own, taps=stream_taps(checkpoint))
