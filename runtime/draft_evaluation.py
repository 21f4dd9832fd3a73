"""How good a bundle's draft is: acceptance on the target's own answers, and the speed it promises on this device.

The target answers each prompt greedily; one causal pass of each model over prompt and answer then gives all
distributions. Greedy drafting is exact to replay: while every drafted token was accepted, the draft has seen the
target's own text, so where both models' likeliest tokens agree decides all rounds of all chain lengths.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import Model

from .bench_passes import context_to_time
from .options import GenerateKeywords

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .bench import Prompt
    from .engine import Engine

CHAINS = (1, 2, 3, 4, 6, 8)
NUM_POSITIONS = max(CHAINS)
ALL = "all"


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Median milliseconds of passes on this device."""

    first_draft_ms: float  # one row right after a pass of the target, which leaves nothing of the draft in the caches
    draft_ms: float  # one row after another one
    verify_ms: dict[int, float]  # by number of rows

    def round_ms(self, chain: int) -> float:
        """A round that drafts `chain` tokens one by one and verifies them after the last emitted one."""
        return self.first_draft_ms + (chain - 1) * self.draft_ms + self.verify_ms[chain + 1]


@dataclass(frozen=True, slots=True)
class ChainScores:
    """Greedy drafting of `chain` tokens a round."""

    chain: int
    acceptance_rate: float  # accepted / drafted
    acceptance_length: float  # tokens a round, the target's own included
    tokens_per_s: float  # predicted: acceptance length over the time of a round's passes
    speedup: float  # against decoding without draft, one pass a token


@dataclass(frozen=True, slots=True)
class DraftScores:
    """Scores over the answers to one category's prompts; the category "all" is over all of them."""

    category: str
    num_prompts: int
    num_tokens: int  # of the answers, without each one's first, which prefill gives
    agreement: float  # share of them that the draft finds likeliest
    overlap: float  # mean of sum min(p, q): acceptance of sampling at temperature 1
    by_position: tuple[float, ...]  # share of k-th drafted tokens that are accepted where the ones before were
    chains: tuple[ChainScores, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the draft thinks of each token of an answer."""

    category: str
    agrees: NDArray[np.bool_]  # [num_tokens]
    overlap: NDArray[np.float64]  # [num_tokens]


def judge(engine: Engine, prompt: Prompt, new_tokens: int) -> Answer:
    """Lets the target answer and compares the two models' distributions at each token of the answer."""
    options = GenerateKeywords(max_new_tokens=new_tokens, ignore_eos=prompt.ignore_eos)
    answer = engine.generate(prompt.ids, **options).token_ids
    ids = (*prompt.ids, *answer)[:-1]
    first = len(prompt.ids) - 1
    target = engine.logits(ids)[first:]
    draft = engine.logits(ids, Model.DRAFT)[first:]
    overlap = np.minimum(_softmax(target), _softmax(draft)).sum(axis=1)
    return Answer(prompt.category, draft.argmax(axis=1) == np.array(answer), overlap)


def measure_costs(engine: Engine, *, context: int, repeats: int) -> PassCosts:
    """Times the passes of a round in turn: the target's for each number of rows, then two of the draft."""
    rows = (1, *(chain + 1 for chain in CHAINS))
    target: dict[int, list[float]] = {count: [] for count in rows}
    draft: list[NDArray[np.float64]] = []
    for _ in range(repeats):
        for count in rows:
            target[count] += engine.time_pass(count, context=context, num_repeats=1).tolist()
            draft.append(engine.time_pass(1, context=context, num_repeats=2, model=Model.DRAFT))
    first, next_one = 1e3 * np.median(draft, axis=0)
    return PassCosts(
        float(first), float(next_one), {count: 1e3 * statistics.median(times) for count, times in target.items()}
    )


def score(answers: Sequence[Answer], costs: PassCosts) -> tuple[DraftScores, ...]:
    """Scores of each category in order of name, then of all answers."""
    categories = sorted({answer.category for answer in answers})
    groups = {name: [answer for answer in answers if answer.category == name] for name in categories}
    return tuple(_score(name, group, costs) for name, group in (groups | {ALL: list(answers)}).items())


def evaluate(
    engine: Engine, prompts: Sequence[Prompt], new_tokens: int, repeats: int, on_step: Callable[[], None]
) -> tuple[tuple[DraftScores, ...], PassCosts]:
    """Judges the draft on every prompt and times the passes; calls `on_step` after each prompt."""
    answers = []
    for prompt in prompts:
        answers.append(judge(engine, prompt, new_tokens))
        on_step()
    middle = int(statistics.median(len(prompt.ids) for prompt in prompts)) + new_tokens // 2
    context = context_to_time(engine, middle, NUM_POSITIONS + 1)
    costs = measure_costs(engine, context=context, repeats=repeats)
    return score(answers, costs), costs


def _score(category: str, answers: Sequence[Answer], costs: PassCosts) -> DraftScores:
    agrees = np.concatenate([answer.agrees[1:] for answer in answers])
    overlap = np.concatenate([answer.overlap[1:] for answer in answers])
    replays = {chain: replay([answer.agrees for answer in answers], chain) for chain in CHAINS}
    return DraftScores(
        category=category,
        num_prompts=len(answers),
        num_tokens=len(agrees),
        agreement=float(agrees.mean()) if len(agrees) else 0.0,
        overlap=float(overlap.mean()) if len(overlap) else 0.0,
        by_position=replays[NUM_POSITIONS].by_position(),
        chains=tuple(_chain_scores(chain, rounds, costs) for chain, rounds in replays.items()),
    )


def _chain_scores(chain: int, rounds: Rounds, costs: PassCosts) -> ChainScores:
    length = rounds.num_tokens / max(1, rounds.num_rounds)
    tokens_per_s = 1e3 * length / costs.round_ms(chain)
    return ChainScores(
        chain=chain,
        acceptance_rate=sum(rounds.accepted) / max(1, rounds.num_drafted),
        acceptance_length=length,
        tokens_per_s=tokens_per_s,
        speedup=tokens_per_s * costs.verify_ms[1] / 1e3,
    )


@dataclass(slots=True)
class Rounds:
    """Counters of replayed rounds."""

    reached: list[int]  # [chain]: rounds whose drafted tokens before position k were all accepted
    accepted: list[int]  # [chain]: of these, rounds whose k-th one was too
    num_rounds: int = 0
    num_drafted: int = 0
    num_tokens: int = 0

    def by_position(self) -> tuple[float, ...]:
        """Acceptance of the k-th drafted token where the ones before were accepted; 0 where that never happened."""
        return tuple(hits / max(1, tries) for hits, tries in zip(self.accepted, self.reached, strict=True))


def replay(answers: Sequence[NDArray[np.bool_]], chain: int) -> Rounds:
    """Rounds of `chain` drafted tokens over answers of which the draft agrees with these tokens; the first is given."""
    rounds = Rounds([0] * chain, [0] * chain)
    for agrees in answers:
        at = 1
        while at < len(agrees):
            offered = agrees[at : at + chain].tolist()
            hits = next((index for index, hit in enumerate(offered) if not hit), len(offered))
            for position in range(min(hits + 1, len(offered))):
                rounds.reached[position] += 1
                rounds.accepted[position] += position < hits
            emitted = min(hits + 1, len(agrees) - at)
            rounds.num_rounds += 1
            rounds.num_drafted += len(offered)
            rounds.num_tokens += emitted
            at += emitted
    return rounds


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    exps = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64)
    return np.asarray(exps / exps.sum(axis=1, keepdims=True))
