"""How good a bundle's draft or head is in chains and trees: acceptance on the target's own answers, and their speed.

A head's guesses depend on the state that each round begins with, and a tree on where earlier rounds ended, so that
rounds are not replayed from two models' logits: every shape generates the answers anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .draft_evaluation import ALL
from .options import GenerateKeywords

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .bench import Prompt
    from .engine import Engine
    from .results import Result, Round

MOST_NODES = 15  # of a tree; with the token before them 16 rows
_CHAINS = {"head": (1, 2, 3, 4, 6), "draft": (2, 4)}  # of a draft model, greedy ones are replayed by draft_evaluation


@dataclass(frozen=True, slots=True)
class ShapeScores:
    """Drafting of one shape."""

    shape: str
    acceptance_rate: float  # accepted / drafted
    acceptance_length: float  # tokens a round, the target's own included
    by_position: tuple[float, ...]  # share of rounds that went k tokens deep, of those that went k - 1 and could go on
    tokens_per_s: float  # by the calibrated costs of the passes that the rounds ran
    speedup: float  # against decoding without drafts, by the same costs


@dataclass(frozen=True, slots=True)
class SourceScores:
    """Scores of a source over the answers to one category's prompts; the category "all" is over all of them."""

    category: str
    num_prompts: int
    shapes: tuple[ShapeScores, ...]

    @property
    def best(self) -> ShapeScores:
        """The fastest shape."""
        return max(self.shapes, key=lambda shape: shape.speedup)


def shapes_of(engine: Engine, source: str) -> dict[str, GenerateKeywords]:
    """What is drafted, by name: chains as deep as a head goes, and a dynamic tree."""
    head = engine.manifest.head if source == "head" else None
    chains = _CHAINS[source]
    deepest = (head.num_predictions if head else 0) or max(chains)
    shapes = {f"chain of {k}": GenerateKeywords(num_draft_tokens=k) for k in sorted({*chains, deepest}) if k <= deepest}
    shapes["dynamic tree"] = GenerateKeywords(tree="dynamic", tree_nodes=MOST_NODES)
    shapes["as many as pay"] = GenerateKeywords()
    return shapes


def evaluate_shapes(
    engine: Engine, source: str, prompts: Sequence[Prompt], common: GenerateKeywords, on_step: Callable[[], None]
) -> tuple[SourceScores, ...]:
    """Answers every prompt plainly and with every shape of a source; calls `on_step` after each prompt.

    The engine must have room for MOST_NODES drafted tokens. ``common`` says how long the answers are and how
    their tokens are chosen.
    """
    shapes = {"plain": common | GenerateKeywords(num_draft_tokens=0)} | {
        name: common | options | GenerateKeywords(source=source) for name, options in shapes_of(engine, source).items()
    }
    answers: list[tuple[str, dict[str, Result]]] = []
    for prompt in prompts:
        results = {name: _answer(engine, prompt, options) for name, options in shapes.items()}
        answers.append((prompt.category, results))
        on_step()
    groups = {name: [found for of, found in answers if of == name] for name in sorted({of for of, _ in answers})}
    groups[ALL] = [found for _, found in answers]
    return tuple(_score(name, group) for name, group in groups.items())


def _answer(engine: Engine, prompt: Prompt, options: GenerateKeywords) -> Result:
    return engine.generate(prompt.ids, **(options | GenerateKeywords(ignore_eos=prompt.ignore_eos, explain=True)))


def _score(category: str, answers: Sequence[Mapping[str, Result]]) -> SourceScores:
    plain = _speed([found["plain"] for found in answers])
    scores = []
    for shape in (name for name in answers[0] if name != "plain"):
        results = [found[shape] for found in answers]
        drafted = sum(result.stats.num_drafted for result in results)
        rounds = [each for result in results for each in result.rounds if each.num_head or each.num_model]
        speed = _speed(results)
        scores.append(
            ShapeScores(
                shape=shape,
                acceptance_rate=sum(result.stats.num_accepted for result in results) / max(1, drafted),
                acceptance_length=sum(each.num_tokens for each in rounds) / max(1, len(rounds)),
                by_position=_by_position(rounds),
                tokens_per_s=speed,
                speedup=speed / plain if plain else 0.0,
            )
        )
    return SourceScores(category, len(answers), tuple(scores))


def _by_position(rounds: Sequence[Round]) -> tuple[float, ...]:
    rates = []
    for depth in range(max((len(each.ranks) for each in rounds), default=0)):
        reached = [len(each.ranks) > depth for each in rounds if len(each.ranks) >= depth and each.num_levels > depth]
        rates.append(sum(reached) / len(reached))
    return tuple(rates)


def _speed(results: Sequence[Result]) -> float:
    seconds = sum(result.stats.counted_seconds for result in results)
    return sum(each.num_tokens for result in results for each in result.rounds) / seconds if seconds else 0.0
