"""Greedy chains that a head with a decoder layer drafts, in torch, from the streams of the target's own model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM

from . import heads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor


class Chains:
    """Chains of a head on the target in `folder`. layout: of a multi-token prediction layer, None for EAGLE heads."""

    def __init__(
        self, folder: Path, kind: str, tensors: dict[str, Tensor], config: dict[str, Any], layout: Any
    ) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
        self._kind, self._tensors, self._config, self._layout = kind, tensors, config, layout
        self._streams: list[Tensor] = []
        for module in (*self._model.model.layers, self._model.model.norm):
            module.register_forward_pre_hook(lambda _, arguments: self._streams.append(arguments[0][0]))
        if layout is not None:
            self._config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            self._config["rope_theta"] = self._config["rope_parameters"]["rope_theta"]

    def features(self, tokens: Sequence[int]) -> Tensor:
        """The feature of each token's position."""
        self._streams.clear()
        with torch.no_grad():
            state = self._model.model(torch.tensor([tokens])).last_hidden_state[0]
        if self._kind != "eagle3":
            return state
        taps = self._config["eagle_aux_hidden_state_layer_ids"]
        return heads.eagle3_features([self._streams[tap] for tap in taps], self._tensors)

    def draft(self, tokens: Sequence[int], features: Tensor, count: int) -> list[int]:
        """The chain of `count` tokens after `tokens`; features: of at least all but the last of them."""
        rows, states = list(tokens[1:]), features[: len(tokens) - 1]
        drafted = []
        for _ in range(count):
            with torch.no_grad():
                following, logits = self._step(torch.tensor(rows), states)
            best = int(logits[-1].argmax())
            drafted.append(best + int(self._tensors["d2t"][best]) if "d2t" in self._tensors else best)
            rows.append(drafted[-1])
            states = torch.cat([states, following[-1:]])
        return drafted

    def _step(self, tokens: Tensor, states: Tensor) -> Any:
        embedding = self._model.get_input_embeddings().weight.detach()
        lm_head = self._model.get_output_embeddings().weight.detach()
        if self._kind == "eagle":
            return heads.eagle(tokens, states, self._tensors, self._config, embedding=embedding, lm_head=lm_head)
        if self._kind == "eagle3":
            return heads.eagle3(tokens, states, self._tensors, self._config)
        num_layers = self._config["num_hidden_layers"]
        own, output = (
            self._tensors.get(f"{share}.weight".format(n=num_layers), shared)
            for share, shared in zip(self._layout.shares, (embedding, lm_head), strict=True)
        )
        following, normed = heads.mtp(own[tokens], states, self._tensors, self._config, self._layout, num_layers)
        return following, normed @ output.T
