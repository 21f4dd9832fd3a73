"""Greedy chain acceptance on prompts that were not trained on, per category.

Greedy drafting is exact to replay: as long as every drafted token was accepted, the draft has seen the target's own
text, so whether it agrees with each next token of the target's greedy answer decides all rounds of all chain lengths.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedModel

from .conversation import chat_frame
from .errors import DataError
from .generate import continue_all
from .target import Target, last_hidden, load_target, output_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pilotfish.exporter.options import ModelFormats

CHAINS = (1, 2, 3, 4, 6, 8)
_PROMPTS_TOGETHER = 40
ALL = "all"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user turn and what kind of task it is."""

    category: str
    text: str


@dataclass(frozen=True, slots=True)
class ChainScores:
    """Greedy drafting of `chain` tokens a round over some answers."""

    chain: int
    acceptance_rate: float  # accepted / drafted
    acceptance_length: float  # tokens a round, the target's own included


@dataclass(frozen=True, slots=True)
class CategoryScores:
    """One row of the evaluation; the category "all" is over all prompts."""

    category: str
    num_prompts: int
    num_tokens: int  # of the target's answers, without each answer's first, which the prefill yields
    agreement: float  # share of them that the draft's argmax names
    chains: tuple[ChainScores, ...]


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """JSON lines with "prompt" and "category".

    Raises:
        DataError: unreadable, empty or of another form; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the evaluation prompts {path} cannot be read: {error}") from error
    prompts = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            prompts.append(Prompt(str(fields["category"]), str(fields["prompt"])))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f'{path}, line {number}: not a JSON object with "category" and "prompt"') from error
    if not prompts:
        raise DataError(f"{path} holds no prompt")
    return tuple(prompts)


def evaluate_prompts(
    target: Target, draft: PreTrainedModel, prompts: Sequence[Prompt], new_tokens: int, advance: Callable[[int], None]
) -> tuple[CategoryScores, ...]:
    """Lets the target answer greedily and replays the draft; categories in order of name, then "all"."""
    draft.train(mode=False)
    agreements: dict[str, list[list[bool]]] = {}
    for group in _groups(target, prompts):
        ids = [prompt_ids for _, prompt_ids in group]
        answers = continue_all(target, ids, new_tokens, [0.0] * len(ids), seed=0)
        for (category, _), found in zip(group, _agreements(draft, ids, answers, target.pad_id), strict=True):
            agreements.setdefault(category, []).append(found)
        advance(len(group))
    every = [item for name in sorted(agreements) for item in agreements[name]]
    return (*(_scores(name, agreements[name]) for name in sorted(agreements)), _scores(ALL, every))


def _groups(target: Target, prompts: Sequence[Prompt]) -> Iterator[list[tuple[str, list[int]]]]:
    """Prompts of similar length together: less padding."""
    frame = None if target.tokenizer.chat_template is None else chat_frame(target.tokenizer, target.checkpoint.id)
    tokenised = [
        (prompt.category, frame.prompt_ids(prompt.text) if frame else target.backend.encode(prompt.text).ids)
        for prompt in prompts
    ]
    tokenised.sort(key=lambda item: len(item[1]))
    for start in range(0, len(tokenised), _PROMPTS_TOGETHER):
        yield tokenised[start : start + _PROMPTS_TOGETHER]


@torch.no_grad()
def _agreements(
    draft: PreTrainedModel, prompts: Sequence[list[int]], answers: Sequence[list[int]], pad_id: int
) -> list[list[bool]]:
    """For each answer, whether the draft's argmax is each of its tokens."""
    width = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    ids = torch.full((len(prompts), width), pad_id)  # padding on the right: a causal model does not see it
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
    hidden = last_hidden(draft, ids.to(draft.device), None)
    result = []
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        logits = hidden[row, len(prompt) - 1 : len(prompt) + len(answer) - 1] @ output_weight(draft).T
        result.append([guess == token for guess, token in zip(logits.argmax(-1).tolist(), answer, strict=True)])
    return result


def _scores(category: str, agreements: Sequence[Sequence[bool]]) -> CategoryScores:
    flat = [agrees for answer in agreements for agrees in answer[1:]]
    return CategoryScores(
        category=category,
        num_prompts=len(agreements),
        num_tokens=len(flat),
        agreement=sum(flat) / max(1, len(flat)),
        chains=tuple(replay(agreements, chain) for chain in CHAINS),
    )


def replay(agreements: Sequence[Sequence[bool]], chain: int) -> ChainScores:
    """Rounds of `chain` drafted tokens over answers of which the draft agrees with these tokens; the first is given."""
    drafted = accepted = rounds = tokens = 0
    for answer in agreements:
        at = 1
        while at < len(answer):
            offered = answer[at : at + chain]
            hits = next((index for index, agrees in enumerate(offered) if not agrees), len(offered))
            emitted = min(hits + 1, len(answer) - at)
            drafted, accepted, rounds, tokens = drafted + len(offered), accepted + hits, rounds + 1, tokens + emitted
            at += emitted
    return ChainScores(chain, accepted / max(1, drafted), tokens / max(1, rounds))


def evaluate_draft(
    target: str,
    draft: Path,
    prompts: Path,
    *,
    new_tokens: int = 128,
    formats: ModelFormats | None = None,
    device: str = "auto",
) -> tuple[CategoryScores, ...]:
    """Evaluates the draft in a folder; `formats` as in `TrainDraftOptions.target_formats`.

    Raises:
        DataError: prompts or draft that cannot be read.
        ExportError: a target that cannot be loaded.
    """
    on_gpu = device != "cpu" and torch.cuda.is_available()
    place, dtype = torch.device("cuda" if on_gpu else "cpu"), torch.bfloat16 if on_gpu else torch.float32
    questions = read_prompts(prompts)
    try:
        model = LlamaForCausalLM.from_pretrained(draft, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError) as error:
        raise DataError(f"the draft {draft} cannot be read: {str(error).splitlines()[0]}") from error
    loaded = load_target(target, formats, dtype, place)
    if model.config.vocab_size < loaded.vocab_size:
        raise DataError(
            f"the draft {draft} has {model.config.vocab_size} tokens, the target's tokenizer {loaded.vocab_size}"
        )
    nn.Module.to(model, place)
    return evaluate_prompts(loaded, model, questions, new_tokens, lambda _: None)
