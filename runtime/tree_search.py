"""The static tree that suits given Medusa heads: the tree of so many tokens that the text follows furthest.

Cai et al. 2024, "Medusa: Simple LLM inference acceleration framework with multiple decoding heads", section 2.3.3 and
appendix C: a tree is grown by the path that adds most to the expected number of accepted tokens, and that is how often
the whole path is right. Rounds in a wide tree say how often: they give the rank that each accepted token had for its
head. Where a path was seen too rarely to tell, the accuracy of its last rank whatever came before stands in.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .draft_tree import Choices
    from .results import Round

_PRIOR_ROUNDS = 10.0  # rounds after which what was seen of a path counts as much as its last rank's accuracy
_MOST_RANKS = 16  # children of a token


@dataclass(slots=True)
class PathCounts:
    """What came of rounds: how often a path's last token was tried, its parent being right, and how often it was."""

    tried: Counter[tuple[int, ...]] = field(default_factory=Counter)
    right: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def add(self, choices: Choices, rounds: Iterable[Round]) -> None:
        """Rounds whose tree was `choices`; those without room for all of it, before a text's end, do not count."""
        children: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for path in choices:
            children.setdefault(path[:-1], []).append(path)
        for ranks in (item.ranks for item in rounds if item.num_verified == len(choices)):
            for depth in range(len(ranks) + 1):
                self.tried.update(children.get(ranks[:depth], ()))
                self.right.update([ranks[:depth]] if depth else [])

    def accuracy(self, path: tuple[int, ...]) -> float:
        """Of a path's last token where the ones before it are right."""
        tried, right = self._by_rank(path)
        usual = right / tried if tried else _guess(path)
        return (self.right[path] + _PRIOR_ROUNDS * usual) / (self.tried[path] + _PRIOR_ROUNDS)

    def _by_rank(self, path: tuple[int, ...]) -> tuple[int, int]:
        """Of all paths that are as long and end in the same rank."""
        alike = [other for other in self.tried if (len(other), other[-1]) == (len(path), path[-1])]
        return sum(self.tried[other] for other in alike), sum(self.right[other] for other in alike)


@dataclass(frozen=True, slots=True)
class SearchedTree:
    """A tree in the order it was grown, so that its first n choices are the best tree of n tokens."""

    choices: Choices
    lengths: tuple[float, ...]
    """Expected tokens a round, the target's own included, of the first 0, 1, 2, ... of them."""

    def best_size(self, seconds: Callable[[int], float]) -> int:
        """How many choices give most tokens a second where a round that verifies n drafted tokens takes seconds(n)."""
        return max(range(1, len(self.lengths)), key=lambda size: self.lengths[size] / seconds(size))


def grow_tree(counts: PathCounts, num_levels: int, num_tokens: int) -> SearchedTree:
    """The most expected tokens a round that num_tokens drafted ones of num_levels heads can give."""
    first: tuple[int, ...] = (0,)
    candidates = [(-counts.accuracy(first), first)]  # the likeliest path first
    choices: list[tuple[int, ...]] = []
    lengths = [1.0]
    worth: dict[tuple[int, ...], float] = {(): 1.0}
    while candidates and len(choices) < num_tokens:
        value, path = heapq.heappop(candidates)
        choices.append(path)
        lengths.append(lengths[-1] - value)
        worth[path] = -value
        further: list[tuple[int, ...]] = [(*path[:-1], path[-1] + 1)] if path[-1] + 1 < _MOST_RANKS else []
        if len(path) < num_levels:
            further.append((*path, 0))
        for other in further:
            heapq.heappush(candidates, (-worth[other[:-1]] * counts.accuracy(other), other))
    return SearchedTree(tuple(choices), tuple(lengths))


def search_tree(
    measure: Callable[[Choices], Iterable[Sequence[Round]]], num_levels: int, num_tokens: int, num_passes: int = 2
) -> SearchedTree:
    """Measures trees of num_tokens, each grown from what is known by then, and grows the one to keep.

    measure: rounds of texts that were drafted with a tree.
    """
    counts = PathCounts()
    for _ in range(num_passes):
        choices = grow_tree(counts, num_levels, num_tokens).choices
        for rounds in measure(choices):
            counts.add(choices, rounds)
    return grow_tree(counts, num_levels, num_tokens)


def _guess(path: tuple[int, ...]) -> float:
    """What heads are usually like, before anything was measured."""
    return float(0.4 * 0.8 ** (len(path) - 1) / (path[-1] + 1) ** 1.3)
