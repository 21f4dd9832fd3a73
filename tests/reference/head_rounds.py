"""Rounds that draft with a Medusa head or an MLP speculator, replayed in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from fitted_heads import NUM_LEVELS, fitted_head, output_name, stage_states

if TYPE_CHECKING:
    from fitted_heads import TorchTarget


class HeadRounds:
    """What torch's head drafts after the target's own states."""

    def __init__(self, kind: str, target: TorchTarget) -> None:
        self._kind, self._target = kind, target
        self._tensors, self._config = fitted_head(kind, target)

    def rounds(self, prompt: list[int], output: tuple[int, ...], widths: tuple[int, ...], shift: int = 0) -> list[int]:
        """Tokens of each round of trees of a shape, given the output. A `shift` of -1 reads the row before."""
        tokens = [*prompt, *output]
        states = self._target.states(torch.tensor([tokens]), self._tensors, self._config)[0]
        length, rounds = len(prompt) + 1, []
        while length < len(tokens):
            num_accepted = 0
            for level, width in enumerate(widths):
                if length + level >= len(tokens) - 1:
                    break
                path = tokens[length - 1 : length + level]
                if tokens[length + level] not in self._likeliest(states[length - 2 + shift], path, level, width):
                    break
                num_accepted += 1
            rounds.append(num_accepted + 1)
            length += num_accepted + 1
        return rounds

    def _likeliest(self, state: torch.Tensor, path: list[int], level: int, width: int) -> list[int]:
        """Of the tokens that follow a path, which begins with the last token of the sequence."""
        tokens = torch.tensor([path + [0] * (NUM_LEVELS - len(path))])
        x = stage_states(self._kind, state[None], tokens, self._tensors, self._config)[level]
        logits = (x @ self._tensors[output_name(self._kind, level)].T)[0]
        return [int(index) for index in torch.topk(logits, width).indices]
