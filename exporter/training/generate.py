"""Batched sampling from the target, each row at its own temperature.

Many rows are written in groups of similar length: a step reads as many keys for each row of a group as for its longest.
On a GPU a step is recorded as a CUDA graph for each width of keys that it reads: launching its kernels one by one takes
longer than they run. Rows that have stopped are dropped now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .recording import Recording
from .row_cache import RowCache, cache_argument, hidden_by_mask, reads_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .target import Target

_PREFILL_TOKENS = 1 << 15  # of one pass over prompts
_STEPS_BETWEEN_DROPS = 16
_WORTH_DROPPING = 0.85  # drop stopped rows once no more than this share is alive: dropping copies the cache
_LEAST_GROUP = 256  # rows that keep a GPU busy
_LEAST_WIDTH = 0.75  # of a group's widest row, once it has that many


@torch.no_grad()
def continue_all(
    target: Target,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    temperatures: Sequence[float],
    *,
    seed: int,
) -> list[list[int]]:
    """What the target writes after each prompt: at most `new_tokens`, the stop token included if it came.

    Prompts are padded on the left. The same seed gives the same text. A model with a sliding window attends to
    everything: prompt and answer have to be shorter than the window.
    """
    generator = torch.Generator(target.model.device).manual_seed(seed)
    written: list[list[int]] = [[] for _ in prompts]
    with reads_rows(target.model):
        for rows in of_similar_width([len(prompt) + new_tokens for prompt in prompts]):
            chosen, warmth = [prompts[row] for row in rows], [temperatures[row] for row in rows]
            answers = _Writing(target, chosen, new_tokens, warmth, generator).run()
            for row, answer in zip(rows, answers.tolist(), strict=True):
                written[row] = _until_stop(answer, target.eos_ids)
    return written


def of_similar_width(widths: Sequence[int]) -> list[list[int]]:
    """Row numbers in groups, the widest rows first; only the last group may be small."""
    groups: list[list[int]] = []
    for row in sorted(range(len(widths)), key=lambda row: -widths[row]):
        if not groups or (len(groups[-1]) >= _LEAST_GROUP and widths[row] < _LEAST_WIDTH * widths[groups[-1][0]]):
            groups.append([])
        groups[-1].append(row)
    return groups


class _Writing:
    """One batch while it is written. All tensors but `written` have a row for each prompt still going on."""

    def __init__(
        self,
        target: Target,
        prompts: Sequence[Sequence[int]],
        new_tokens: int,
        temperatures: Sequence[float],
        generator: torch.Generator,
    ) -> None:
        device, prompt_tokens = target.model.device, max(len(prompt) for prompt in prompts)
        self._target, self._decoder = target, target.model.base_model
        self._cache_name = cache_argument(self._decoder)
        self._ids = torch.full((len(prompts), prompt_tokens), target.pad_id, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            self._ids[row, prompt_tokens - len(prompt) :] = torch.tensor(prompt)
        self._ids = self._ids.to(device)
        self._padding = torch.tensor([prompt_tokens - len(prompt) for prompt in prompts], device=device)
        self._temperatures = torch.tensor(list(temperatures), dtype=torch.float32, device=device)
        self._sampled = self._temperatures.nonzero().ravel()  # rows that are not greedy
        self._origins = torch.arange(len(prompts), device=device)
        self._stopped = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        self._stop_ids = torch.tensor(target.eos_ids, device=device)
        self._generator = generator
        self._cache = RowCache(len(prompts), prompt_tokens + new_tokens, device)
        self._tokens = torch.zeros(len(prompts), dtype=torch.int64, device=device)  # that the running step reads
        self._recording: Recording | None = None
        self._recorded = (0, 0)  # rows and width of keys
        self._written = torch.full((len(prompts), new_tokens), target.eos_ids[0], device=device)

    def run(self) -> Tensor:
        """int64 [prompts, new tokens] on the CPU; after a row's stop token anything."""
        tokens = self._choose(self._prefill())
        for step in range(self._written.shape[1]):
            self._written[self._origins, step] = tokens
            self._stopped |= torch.isin(tokens, self._stop_ids)
            if step % _STEPS_BETWEEN_DROPS == 0:
                tokens = self._drop_stopped(tokens)
            if not len(tokens) or step + 1 == self._written.shape[1]:
                break
            tokens = self._choose(self._step(tokens))
        return self._written.cpu()

    def _prefill(self) -> Tensor:
        """Hidden states [rows, hidden] at the prompts' last positions; fills the cache, some rows at a time."""
        length = self._ids.shape[1]
        index = torch.arange(length, device=self._ids.device)
        causal, itself = index <= index[:, None], index == index[:, None]
        together, last = max(1, _PREFILL_TOKENS // length), []
        for start in range(0, len(self._ids), together):
            part = slice(start, start + together)
            padding = self._padding[part, None]
            # padding sees itself: a row without any visible position would be NaN, and 0 * NaN is NaN further on
            visible = (causal & (index >= padding)[:, None]) | itself
            hidden = self._decode(self._ids[part], (index - padding).clamp(min=0), visible, start)
            last.append(hidden[:, -1])
        self._cache.advance(length)
        return torch.cat(last)

    def _step(self, tokens: Tensor) -> Tensor:
        self._tokens.copy_(tokens)
        hidden = self._recorded_step() if tokens.is_cuda else self._read_tokens()
        self._cache.advance(1)
        return hidden

    def _recorded_step(self) -> Tensor:
        wanted = (len(self._tokens), self._cache.read_width)
        if self._recording is None or wanted != self._recorded:
            self._recording, self._recorded = Recording(self._read_tokens), wanted
        return self._recording.replay()

    def _read_tokens(self) -> Tensor:
        """Hidden states [rows, hidden] after one further token a row; reads no number that changes by the step."""
        at = self._cache.next_position
        index = torch.arange(self._cache.read_width, device=at.device)
        visible = (index >= self._padding[:, None]) & (index <= at)
        return self._decode(self._tokens[:, None], (at - self._padding)[:, None], visible[:, None], 0)[:, 0]

    def _decode(self, ids: Tensor, positions: Tensor, visible: Tensor, first_row: int) -> Tensor:
        cache: Any = {self._cache_name: self._cache.at_row(first_row)}
        mask = hidden_by_mask(visible, self._target.model.dtype)
        output = self._decoder(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=True, **cache)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def _choose(self, hidden: Tensor) -> Tensor:
        head = self._target.head
        # in bf16, logits of 16 to 32 come in steps of 1/8, and the best token is often a tie
        wide = head.is_cuda and head.dtype != torch.float32  # a product that CPUs do not have
        logits = torch.mm(hidden, head.T, out_dtype=torch.float32) if wide else hidden.float() @ head.float().T
        return choose_tokens(logits, self._temperatures, self._sampled, self._generator)

    def _drop_stopped(self, tokens: Tensor) -> Tensor:
        alive = (~self._stopped).nonzero().ravel()
        if len(alive) > _WORTH_DROPPING * len(tokens):
            return tokens
        self._cache.keep(alive)
        self._padding, self._temperatures = self._padding[alive], self._temperatures[alive]
        self._origins, self._stopped = self._origins[alive], self._stopped[alive]
        self._tokens, self._recording = self._tokens[alive], None
        self._sampled = self._temperatures.nonzero().ravel()
        return tokens[alive]


def choose_tokens(logits: Tensor, temperatures: Tensor, sampled: Tensor, generator: torch.Generator) -> Tensor:
    """[rows, vocabulary] -> int64 [rows]: the best token, in the rows `sampled` one drawn at the row's temperature."""
    tokens = logits.argmax(dim=1)
    if len(sampled):
        scaled = logits[sampled].float() / temperatures[sampled, None]
        tokens[sampled] = torch.multinomial(scaled.softmax(dim=1), 1, generator=generator).ravel()
    return tokens


def _until_stop(ids: list[int], eos_ids: tuple[int, ...]) -> list[int]:
    for index, token in enumerate(ids):
        if token in eos_ids:
            return ids[: index + 1]
    return ids
