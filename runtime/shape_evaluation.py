"""How good a bundle's head is: acceptance of its chains and trees on the target's own greedy answers, and their speed.

Unlike a draft model's, a head's guesses depend on the state that each round begins with, so that rounds are not
replayed from two models' logits: every shape generates the answers anew.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .draft_evaluation import ALL
from .draft_tree import MEDUSA_CHOICES
from .options import GenerateKeywords

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .bench import Prompt
    from .engine import Engine
    from .results import Result

TREE_TOKENS = 15  # with the token before them 16 rows
_CHAINS = (1, 2, 3, 4, 6)


@dataclass(frozen=True, slots=True)
class ShapeScores:
    """Greedy drafting of one shape."""

    shape: str
    acceptance_rate: float  # accepted / drafted
    acceptance_length: float  # tokens a round, the target's own included
    by_position: tuple[float, ...]  # share of rounds that went at least k tokens deep, of those that went k - 1
    tokens_per_s: float  # by the calibrated costs of the passes that the rounds ran
    speedup: float  # against decoding without a head, by the same costs


@dataclass(frozen=True, slots=True)
class HeadScores:
    """Scores over the answers to one category's prompts; the category "all" is over all of them."""

    category: str
    num_prompts: int
    shapes: tuple[ShapeScores, ...]


def shapes_of(engine: Engine) -> dict[str, GenerateKeywords]:
    """What is drafted, by name: chains as deep as the head goes, a dynamic tree, and Medusa's where it fits."""
    head = engine.manifest.head
    deepest = (head.num_predictions if head else 0) or max(_CHAINS)
    shapes = {
        f"chain of {k}": GenerateKeywords(num_draft_tokens=k) for k in sorted({*_CHAINS, deepest}) if k <= deepest
    }
    shapes["dynamic tree"] = GenerateKeywords(tree="dynamic", tree_nodes=TREE_TOKENS)
    if head and head.kind == "medusa" and deepest >= max(map(len, MEDUSA_CHOICES)):
        shapes["medusa tree"] = GenerateKeywords(tree="medusa")
    return shapes


def evaluate_head(
    engine: Engine, prompts: Sequence[Prompt], new_tokens: int, on_step: Callable[[], None]
) -> tuple[HeadScores, ...]:
    """Answers every prompt plainly and with every shape; calls `on_step` after each prompt.

    The engine must have room for TREE_TOKENS drafted tokens.
    """
    shapes = {"plain": GenerateKeywords(num_draft_tokens=0)} | {
        name: options | GenerateKeywords(source="head") for name, options in shapes_of(engine).items()
    }
    answers: list[tuple[str, dict[str, Result]]] = []
    for prompt in prompts:
        common = GenerateKeywords(max_new_tokens=new_tokens, ignore_eos=prompt.ignore_eos, explain=True)
        results = {name: engine.generate(prompt.ids, **(options | common)) for name, options in shapes.items()}
        answers.append((prompt.category, results))
        on_step()
    groups = {name: [found for of, found in answers if of == name] for name in sorted({of for of, _ in answers})}
    groups[ALL] = [found for _, found in answers]
    return tuple(_score(name, group) for name, group in groups.items())


def _score(category: str, answers: Sequence[Mapping[str, Result]]) -> HeadScores:
    plain = _speed([found["plain"] for found in answers])
    scores = []
    for shape in (name for name in answers[0] if name != "plain"):
        results = [found[shape] for found in answers]
        drafted = sum(result.stats.num_drafted for result in results)
        rounds = [each.num_tokens for result in results for each in result.rounds if each.num_head]
        speed = _speed(results)
        scores.append(
            ShapeScores(
                shape=shape,
                acceptance_rate=sum(result.stats.num_accepted for result in results) / max(1, drafted),
                acceptance_length=sum(rounds) / max(1, len(rounds)),
                by_position=_by_position(rounds),
                tokens_per_s=speed,
                speedup=speed / plain if plain else 0.0,
            )
        )
    return HeadScores(category, len(answers), tuple(scores))


def _by_position(rounds: Sequence[int]) -> tuple[float, ...]:
    reached = [sum(tokens > depth for tokens in rounds) for depth in range(max(rounds, default=1))]
    return tuple(after / before for before, after in itertools.pairwise(reached))


def _speed(results: Sequence[Result]) -> float:
    seconds = sum(result.stats.counted_seconds for result in results)
    return sum(each.num_tokens for result in results for each in result.rounds) / seconds if seconds else 0.0
