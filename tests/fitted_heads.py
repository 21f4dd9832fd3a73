"""Medusa and MLP heads of a tiny target whose output layers are fitted to its greedy texts, so that they often agree.

Both kinds have states that do not depend on their output layers: these are a ridge regression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tiny_heads
import torch
from reference import heads as reference
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, ModelFormats, export

if TYPE_CHECKING:
    from pathlib import Path

Tensors = dict[str, torch.Tensor]
KINDS = ("medusa", "mlp_speculator")
NUM_LEVELS = 3
_F32 = ModelFormats("f32", "f32", "f32")
EXACT = ExportOptions(target=_F32, cache_dtype="f32", head_format="f32", parity=False)
LOW_BIT = ExportOptions(head_format="int8", parity=False)


class TorchTarget:
    """A checkpoint's states that heads read, and texts of its own."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
        self.vocab = int(self._model.config.vocab_size)
        self._streams: list[torch.Tensor] = []
        for layer in self._model.model.layers:
            layer.register_forward_pre_hook(lambda _, arguments: self._streams.append(arguments[0]))

    @torch.no_grad()
    def states(self, tokens: torch.Tensor, tensors: Tensors, config: dict[str, Any]) -> torch.Tensor:
        """[texts, tokens] -> [texts, tokens, hidden]."""
        self._streams.clear()
        state = self._model.model(tokens).last_hidden_state
        return reference.with_streams(state, self._streams, tensors, config)

    @torch.no_grad()
    def texts(self) -> torch.Tensor:
        prompts = torch.randint(self.vocab - 2, (96, 6), generator=torch.Generator().manual_seed(2))
        return self._model.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=False, min_new_tokens=40, max_new_tokens=40
        )


def stage_states(kind: str, state: torch.Tensor, tokens: torch.Tensor, tensors: Tensors, config: Any) -> list[Any]:
    """What each level's output layer reads: rows of target states, and the tokens after them [rows, levels]."""
    if kind == "medusa":
        eye = torch.eye(state.shape[1])
        bodies = {name: part for name, part in tensors.items() if "linear" in name}
        return [reference.medusa_logits(state, bodies, level, 1, eye) for level in range(NUM_LEVELS)]
    return [found for found, _ in reference.mlp_stages(state, tokens, tensors, config)]


def output_name(kind: str, level: int) -> str:
    return f"{level}.1.weight" if kind == "medusa" else f"speculator.head.{level}.weight"


def fitted_head(kind: str, target: TorchTarget) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and config of a head for the target; the speculator reads two further streams."""
    tensors, config = tiny_heads.medusa(NUM_LEVELS) if kind == "medusa" else tiny_heads.mlp_speculator(taps=(1, 0))
    if kind != "medusa":
        tensors |= {name: part[: target.vocab] for name, part in tensors.items() if ".emb." in name}
        config |= {"vocab_size": target.vocab}
    tokens = target.texts()
    length = tokens.shape[1] - NUM_LEVELS - 1
    state = target.states(tokens, tensors, config)[:, :length].flatten(0, 1)
    after = torch.stack([tokens[:, 1 + level : 1 + level + length].flatten() for level in range(NUM_LEVELS + 1)], 1)
    for level, x in enumerate(stage_states(kind, state, after[:, :NUM_LEVELS], tensors, config)):
        wanted = torch.nn.functional.one_hot(after[:, level + 1], target.vocab).float()
        gram = x.T @ x + 0.1 * torch.eye(x.shape[1])
        tensors[output_name(kind, level)] = 8 * torch.linalg.solve(gram, x.T @ wanted).T.contiguous()
    return tensors, config


def export_with(out: Path, target: Path, head: Path, options: ExportOptions, draft: Path | None = None) -> Path:
    export(str(target), out, draft=None if draft is None else str(draft), head=str(head), options=options)
    return out
