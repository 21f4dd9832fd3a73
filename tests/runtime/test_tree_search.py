"""The tree that is searched for Medusa heads, against all trees on texts whose rounds are made up."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from pilotfish.runtime.draft_tree import Choices, check_choices
from pilotfish.runtime.results import Round
from pilotfish.runtime.tree_search import PathCounts, SearchedTree, grow_tree, search_tree

Path = tuple[int, ...]
NO_ROUND = Round("pinned", 0, 0, 0.0, 0.0, 0, 0, 0, 0, 1)
# How often the ranks of the next two tokens are these: heads that are right together more often than by chance.
TRUTH: dict[Path, float] = {
    (0, 0): 0.3,
    (0, 1): 0.02,
    (1, 0): 0.03,
    (1, 1): 0.2,
    (2, 0): 0.15,
    (3, 3): 0.05,
    (9, 9): 0.25,
}


def rounds_in(choices: Choices, num_rounds: int, seed: int = 0) -> list[Round]:
    drawn = random.Random(seed).choices(list(TRUTH), list(TRUTH.values()), k=num_rounds)
    depths = [max(depth for depth in range(3) if depth == 0 or ranks[:depth] in choices) for ranks in drawn]
    return [
        replace(NO_ROUND, num_verified=len(choices), ranks=ranks[:depth])
        for ranks, depth in zip(drawn, depths, strict=True)
    ]


def worth(tree: Choices) -> float:
    return 1 + sum(share for ranks, share in TRUTH.items() for depth in (1, 2) if ranks[:depth] in tree)


def all_trees(num_tokens: int) -> list[Choices]:
    paths = [path for length in (1, 2) for path in itertools.product(range(4), repeat=length)]

    def is_tree(chosen: tuple[Path, ...]) -> bool:
        elders = ((*path[:-1], path[-1] - 1) if path[-1] else path[:-1] for path in chosen)
        return all(not elder or elder in chosen for elder in elders)

    return [chosen for chosen in itertools.combinations(paths, num_tokens) if is_tree(chosen)]


@pytest.mark.parametrize("num_tokens", [1, 3, 5])
def test_the_search_finds_the_best_of_all_trees(num_tokens: int) -> None:
    searched = search_tree(lambda choices: [rounds_in(choices, 4000)], num_levels=2, num_tokens=20)
    found = searched.choices[:num_tokens]
    check_choices(found)
    best = max(map(worth, all_trees(num_tokens)))
    assert worth(found) == pytest.approx(best, abs=1e-9)
    assert searched.lengths[num_tokens] == pytest.approx(best, abs=0.05)


def test_what_was_never_seen_follows_its_ranks_accuracy() -> None:
    counts = PathCounts()
    counts.add(((0,), (0, 0)), [replace(NO_ROUND, num_verified=2, ranks=(0, 0))] * 30)
    counts.add(((0,), (0, 0)), [replace(NO_ROUND, num_verified=1, ranks=(0,))] * 100)  # cut off: they say nothing
    assert counts.accuracy((0, 0)) == 1
    assert counts.accuracy((3, 0)) == 1
    assert counts.accuracy((0, 1)) == pytest.approx(PathCounts().accuracy((0, 1)))


def test_a_tree_has_no_more_levels_than_heads() -> None:
    searched = grow_tree(PathCounts(), num_levels=1, num_tokens=5)
    assert searched.choices == ((0,), (1,), (2,), (3,), (4,))
    assert searched.lengths[0] == 1
    assert list(searched.lengths) == sorted(searched.lengths)


def test_the_size_depends_on_what_a_row_costs() -> None:
    tree = SearchedTree(((0,), (1,), (2,)), (1.0, 1.5, 1.6, 1.65))
    assert tree.best_size(lambda _: 1.0) == 3
    assert tree.best_size(lambda size: 1 + 0.08 * size) == 1
