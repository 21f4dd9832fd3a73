"""Batched sampling from the target with transformers, each row at its own temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .target import Target


class RowTemperatures(LogitsProcessor):
    """Divides each row's logits by its temperature; temperature 0 leaves only the best token."""

    def __init__(self, temperatures: Tensor, vocab_size: int) -> None:
        self._greedy = (temperatures == 0)[:, None]  # [rows, 1]
        self._divisor = torch.where(temperatures == 0, 1.0, temperatures)[:, None]
        self._vocab_size = vocab_size

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002
        """[rows, vocabulary] logits -> logits; padding of the vocabulary is never chosen."""
        scores = scores.float() / self._divisor
        scores[:, self._vocab_size :] = -torch.inf
        best = torch.full_like(scores, -torch.inf).scatter_(1, scores.argmax(dim=1, keepdim=True), 0.0)
        return torch.where(self._greedy, best, scores)


@torch.no_grad()
def continue_all(
    target: Target,
    prompts: Sequence[Sequence[int]],
    prompt_tokens: int,
    new_tokens: int,
    temperatures: Sequence[float],
    *,
    seed: int,
) -> list[list[int]]:
    """What the target writes after each prompt: at most `new_tokens`, the stop token included if it came.

    Prompts, none longer than `prompt_tokens`, are padded on the left to that length, so every call has one shape; on
    a GPU the cache is static and transformers captures the decoding step. The same seed gives the same text.
    """
    device = target.model.device
    ids = torch.full((len(prompts), prompt_tokens), target.pad_id, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, prompt_tokens - len(prompt) :] = torch.tensor(prompt)
        mask[row, prompt_tokens - len(prompt) :] = 1
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=new_tokens,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=list(target.eos_ids),
        pad_token_id=target.pad_id,
        cache_implementation="static" if device.type == "cuda" else None,
    )
    processor = RowTemperatures(torch.tensor(list(temperatures), dtype=torch.float32, device=device), target.vocab_size)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model: Any = target.model
        output = model.generate(
            ids.to(device),
            attention_mask=mask.to(device),
            generation_config=config,
            logits_processor=LogitsProcessorList([processor]),
        )
    return [_until_stop(row, target.eos_ids) for row in output[:, prompt_tokens:].cpu().tolist()]


def _until_stop(ids: list[int], eos_ids: tuple[int, ...]) -> list[int]:
    for index, token in enumerate(ids):
        if token in eos_ids:
            return ids[: index + 1]
    return ids
