"""Greedy chain acceptance on prompts that were not trained on, per category.

Greedy drafting is exact to replay: as long as every drafted token was accepted, draft or head has read the target's own
text, so the places of each next token of the target's greedy answer among its guesses decide all rounds of all chains.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pilotfish.exporter.border import only_own_errors

from .conversation import chat_frame
from .errors import DataError
from .generate import continue_all
from .rows import Batch
from .student import shifted
from .students import load_student
from .target import Seen, Target, load_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pilotfish.exporter.options import ModelFormats

    from .student import Student

CHAINS = (1, 2, 3, 4, 6, 8)
_PROMPTS_TOGETHER = 40
ALL = "all"
Ranks = list[list[int]]  # of an answer: for each token its place in the guess of each depth, 0 is the likeliest


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
    agreement: float  # share of them that the first guess names
    chains: tuple[ChainScores, ...]


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """JSON lines with "prompt" and "category".

    Raises:
        DataError: unreadable, empty or of another form; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not U+2028, which JSON strings may hold
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the prompts {path} cannot be read: {error}") from error
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
    target: Target, student: Student, prompts: Sequence[Prompt], new_tokens: int, advance: Callable[[int], None]
) -> tuple[CategoryScores, ...]:
    """Lets the target answer greedily and replays the drafting; categories in order of name, then "all"."""
    student.eval()
    chains = tuple(chain for chain in CHAINS if student.max_depth is None or chain <= student.max_depth)
    found: dict[str, list[Ranks]] = {}
    for group in _groups(target, prompts):
        ids = [prompt_ids for _, prompt_ids in group]
        answers = continue_all(target, ids, new_tokens, [0.0] * len(ids), seed=0)
        for (category, _), ranks in zip(group, _ranks(target, student, ids, answers, chains[-1]), strict=True):
            found.setdefault(category, []).append(ranks)
        advance(len(group))
    every = [item for name in sorted(found) for item in found[name]]
    return (*(_scores(name, found[name], chains) for name in sorted(found)), _scores(ALL, every, chains))


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
def _ranks(
    target: Target, student: Student, prompts: Sequence[list[int]], answers: Sequence[list[int]], depth: int
) -> list[Ranks]:
    """For each answer, the place of each of its tokens among the guesses of every depth."""
    width = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    ids = torch.full((len(prompts), width), target.pad_id)  # padding on the right: causal models do not see it
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
    ids = ids.to(target.model.device)
    batch = Batch(ids, None, torch.ones_like(ids, dtype=torch.bool))
    seen = target.look(ids, None, student.taps)
    exact = Seen(seen.hidden.float(), seen.embedded.float(), tuple(stream.float() for stream in seen.streams))
    places = student.ranks(batch, exact, target.head.float(), shifted(ids, -1), depth).permute(1, 2, 0).cpu()
    return [
        places[row, len(prompt) - 1 : len(prompt) + len(answer) - 1].tolist()
        for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]


def _scores(category: str, answers: Sequence[Ranks], chains: Sequence[int]) -> CategoryScores:
    flat = [ranks[0] == 0 for answer in answers for ranks in answer[1:]]
    return CategoryScores(
        category=category,
        num_prompts=len(answers),
        num_tokens=len(flat),
        agreement=sum(flat) / max(1, len(flat)),
        chains=tuple(replay(answers, chain) for chain in chains),
    )


def replay(answers: Sequence[Ranks], chain: int) -> ChainScores:
    """Rounds of `chain` drafted tokens over answers; the first token of each is given."""
    drafted = accepted = rounds = tokens = 0
    for answer in answers:
        at = 1
        while at < len(answer):
            offered = answer[at : at + chain]
            hits = next((depth for depth, ranks in enumerate(offered) if ranks[depth] != 0), len(offered))
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
    """Evaluates the draft or head in a folder; `formats` as in `TrainOptions.target_formats`.

    Raises:
        DataError: prompts or draft that cannot be read.
        ExportError: a target that cannot be loaded.
    """
    on_gpu = device != "cpu" and torch.cuda.is_available()
    place, dtype = torch.device("cuda" if on_gpu else "cpu"), torch.bfloat16 if on_gpu else torch.float32
    with only_own_errors(f"evaluating {draft}"):
        questions = read_prompts(prompts)
        loaded = load_target(target, formats, dtype, place)
        student = load_student(draft, loaded)
        return evaluate_prompts(loaded, student.to(place), questions, new_tokens, lambda _: None)
