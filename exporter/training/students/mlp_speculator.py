"""The MLP speculator in training.

Wertheimer et al. 2024, "Accelerating production LLMs with combined token/embedding speculators", section 3: stages are
teacher-forced, each gets the text's own token where a drafting one gets the token that the stage before chose.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from pilotfish.exporter.heads.target_state import stream_taps
from pilotfish.exporter.training.draft import project_embedding
from pilotfish.exporter.training.shapes import SpeculatorShape
from pilotfish.exporter.training.student import shifted

from .head_files import save_head
from .last_state import LastStateStudent

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.heads import HeadCheckpoint
    from pilotfish.exporter.training.rows import Batch
    from pilotfish.exporter.training.target import Seen, Target

_EPSILON = 1e-6


class _ScaleShift(nn.Module):
    """Division by the root mean square, then a scale and a shift."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] twice, f32."""
        return functional.rms_norm(x.float(), x.shape[-1:], eps=_EPSILON) * self.weight + self.bias


class SpeculatorStudent(LastStateStudent):
    """Stage d guesses from the state before it and the token before it. Parameters have the published names."""

    def __init__(self, shape: SpeculatorShape, target: Target, loss: str, _ids: Tensor | None = None) -> None:
        super().__init__(loss, shape.num_stages, shape.decay, shape.taps, target)
        self._shape, self._hidden, self._vocab = shape, target.hidden_size, target.vocab_size
        inner, own = shape.inner_dim, 1 if shape.tie_weights else shape.num_stages
        widths = [target.hidden_size, *([inner] * ((2 if shape.tie_weights else shape.num_stages) - 1))]
        self.emb = nn.ModuleList(nn.Embedding(self._vocab, inner) for _ in range(own))
        self.proj = nn.ModuleList(nn.Linear(width, inner, bias=False) for width in widths[: shape.num_stages])
        self.head = nn.ModuleList(nn.Linear(inner, self._vocab, bias=False) for _ in range(own))
        self.ln = nn.ModuleList(_ScaleShift(inner) for _ in range(own))
        self._begin(target)

    @torch.no_grad()
    def _begin(self, target: Target) -> None:
        """Embeddings and output layers begin as the target's in fewer dimensions, at the published spread."""
        spread = 1 / math.sqrt(self._shape.inner_dim)
        rows = project_embedding(target.head.float().cpu(), self._shape.inner_dim)
        for module in (*self.emb, *self.head):
            module.weight.copy_(rows * (spread / rows.std()))
        for linear in self.proj:
            nn.init.trunc_normal_(linear.weight, 0, spread)  # type: ignore[arg-type]

    def guess(self, batch: Batch, seen: Seen, target_head: Tensor, depth: int) -> list[tuple[Tensor, Tensor]]:  # noqa: ARG002
        """Every stage after the text's own tokens."""
        shape, guesses = self._shape, []
        state_weight = 0.5 ** (0.5 / shape.num_stages)
        token_weight = math.sqrt((1 - state_weight**2) * shape.inner_dim / 2)
        state = functional.rms_norm(self.state(seen).float(), (self._hidden,), eps=_EPSILON) * math.sqrt(0.5)
        for stage in range(min(depth, self.depth)):
            own, proj = (0, min(stage, 1)) if shape.tie_weights else (stage, stage)
            token = self.emb[own](shifted(batch.token_ids, -1 - stage))
            mixed = self.proj[proj](state) + token_weight / state_weight * token
            state = functional.gelu(self.ln[own](mixed))
            guesses.append((state, self.head[own].weight))
        return guesses  # type: ignore[return-value]  # a module's attribute might be a module

    def save(self, folder: Path) -> None:
        """The ibm-fms layout as vLLM's MLPSpeculatorPreTrainedModel reads it."""
        shape = self._shape
        config = {
            "architectures": ["MLPSpeculatorPreTrainedModel"],
            "model_type": "mlp_speculator",
            "emb_dim": self._hidden,
            "inner_dim": shape.inner_dim,
            "n_predict": shape.num_stages,
            "n_candidates": 5,
            "top_k_tokens_per_head": [4, 3, 2, *([1] * shape.num_stages)][: shape.num_stages],
            "vocab_size": self._vocab,
            "tie_weights": shape.tie_weights,
            "scale_input": True,
        }
        tensors, taps = self.stored()
        named = {f"speculator.{name}": tensor for name, tensor in tensors.items()}
        save_head(folder, named, config | taps, torch.float16)

    def describe(self) -> str:
        """For the card."""
        shape = self._shape
        return (
            f"MLP speculator, {shape.num_stages} stages, inner dimension {shape.inner_dim}, "
            f"{'tied' if shape.tie_weights else 'untied'} weights{self.describe_taps()}"
        )


def shape_of(checkpoint: HeadCheckpoint) -> SpeculatorShape:
    """Of a finished head."""
    stages, inner = int(checkpoint.setting("n_predict")), int(checkpoint.setting("inner_dim"))
    tied = bool(checkpoint.config.get("tie_weights"))
    return SpeculatorShape(stages, inner, tie_weights=tied, taps=stream_taps(checkpoint))
