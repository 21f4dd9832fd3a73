"""The shape of a token tree, as users spell it."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass

from pilotfish.bindings import InvalidArgumentError, limits

from .option_checks import check_int, shown

DYNAMIC = "dynamic"
MEDUSA = "medusa"
MOST_CHOICES = 15  # of a tree that a bundle has; with the token before them 16 rows
Choices = tuple[tuple[int, ...], ...]  # paths of ranks: (1, 0) is the likeliest token after the second likeliest


# With the token before them 16 rows: wide near the root, where heads are right most often.
MEDUSA_CHOICES = (
    *((rank,) for rank in range(4)),
    *((0, rank) for rank in range(3)),
    (1, 0),
    (1, 1),
    (2, 0),
    (0, 0, 0),
    (0, 0, 1),
    (0, 1, 0),
    (1, 0, 0),
    (0, 0, 0, 0),
)


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A fixed shape, a dynamic one of so many tokens, or Medusa's choices; without any a chain."""

    widths: tuple[int, ...] = ()
    nodes: int = 0
    depth: int = 0
    parents: tuple[int, ...] = ()
    """Of each token an earlier one, or -1 for the last token of the sequence; ascending."""


def parse_tree(
    tree: str | None,
    nodes: int | None,
    depth: int | None,
    *,
    max_draft_tokens: int,
    medusa: Choices = MEDUSA_CHOICES,
) -> DraftTree:
    """The tree that ``tree``, "3-2-2-1" or "dynamic", asks for; None asks for a chain.

    Args:
        tree: children of each token, level by level, or "dynamic"; "medusa" or a JSON list of Medusa's choices.
        nodes: tokens of a dynamic tree; None takes all that the engine has room for.
        depth: levels of a dynamic tree; None takes the library's number, or as many as it has tokens.
        max_draft_tokens: what the engine has room for.
        medusa: the choices that "medusa" stands for.

    Raises:
        InvalidArgumentError: not such a text, a tree with too many tokens, or nodes or depth without "dynamic".
    """
    check_tree_type(tree)
    if tree != DYNAMIC:
        for name, value in (("tree_nodes", nodes), ("tree_depth", depth)):
            if value is not None:
                raise InvalidArgumentError(f'{name} is {shown(value)}, but only tree="{DYNAMIC}" has it')
    if tree is None:
        return DraftTree()
    if tree == DYNAMIC:
        nodes = max_draft_tokens if nodes is None else nodes
        check_int("tree_nodes", nodes, 1, max_draft_tokens)
        depth = min(limits.DEFAULT_TREE_DEPTH, nodes) if depth is None else depth
        check_int("tree_depth", depth, 1, nodes)
        return DraftTree(nodes=nodes, depth=depth)
    shape = _parse_fixed(tree, medusa)
    num_tokens = len(shape.parents) or count_tokens(shape.widths)
    if num_tokens > max_draft_tokens:
        raise InvalidArgumentError(
            f"tree {tree} has {num_tokens} tokens, but the engine was opened with max_draft_tokens {max_draft_tokens}"
        )
    return shape


def room_for(tree: str | None, nodes: int | None) -> int:
    """Tokens a round that an engine needs room for; 0 where it says none: a chain, or a dynamic tree without nodes."""
    if tree is None:
        return 0
    if tree == DYNAMIC:
        return nodes or 0
    shape = _parse_fixed(tree, MEDUSA_CHOICES)  # a bundle's own tree has no more
    return len(shape.parents) or count_tokens(shape.widths)


def count_tokens(widths: tuple[int, ...]) -> int:
    """Tokens of a fixed shape."""
    total, level = 0, 1
    for width in widths:
        level *= width
        total += level
    return total


def check_tree_type(tree: object) -> None:
    """InvalidArgumentError unless it is a string, or None."""
    if tree is not None and not isinstance(tree, str):
        raise InvalidArgumentError(f'tree is {shown(tree)}, must be a string such as "3-2-2-1" or "{DYNAMIC}"')


def _parse_fixed(tree: str, medusa: Choices) -> DraftTree:
    if tree == MEDUSA:
        return DraftTree(parents=_parents(tree, medusa))
    if tree.startswith("["):
        return DraftTree(parents=_parents(tree, _parse_choices(tree)))
    widths = _parse_widths(tree)
    if (num_tokens := count_tokens(widths)) > limits.MOST_DRAFT_TOKENS:
        raise InvalidArgumentError(f"tree {tree} has {num_tokens} tokens, must have at most {limits.MOST_DRAFT_TOKENS}")
    return DraftTree(widths=widths)


def check_choices(choices: Choices) -> None:
    """Whether they are a tree that a bundle can have.

    Raises:
        InvalidArgumentError: a path without its parent or elder sibling, or more than MOST_CHOICES.
    """
    if len(choices) > MOST_CHOICES:
        raise InvalidArgumentError(f"tree has {len(choices)} choices, must have at most {MOST_CHOICES}")
    _parents(json.dumps(choices), choices)


def _parse_choices(tree: str) -> Choices:
    try:
        choices = tuple(tuple(operator.index(rank) for rank in path) for path in json.loads(tree))
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f'tree is {shown(tree)}, must be a list of paths of ranks, such as "[[0], [1], [0, 0]]"'
        ) from error
    if not 1 <= len(choices) <= limits.MOST_DRAFT_TOKENS:
        raise InvalidArgumentError(f"tree has {len(choices)} choices, must have 1 to {limits.MOST_DRAFT_TOKENS}")
    return choices


def _parents(tree: str, choices: Choices) -> tuple[int, ...]:
    """Of each path, in breadth-first order, the index of the path without its last rank."""
    if twice := next((path for at, path in enumerate(choices) if path in choices[:at]), None):
        raise InvalidArgumentError(f"tree is {shown(tree)}, which has the choice {list(twice)} twice")
    order = sorted(choices, key=lambda path: (len(path), path))
    index = {path: at for at, path in enumerate(order)} | {(): -1}
    for path in order:
        elder = (*path[:-1], path[-1] - 1) if path and path[-1] > 0 else path[:-1]
        if not path or min(path) < 0 or elder not in index:
            raise InvalidArgumentError(
                f"tree is {shown(tree)}, but the choice {list(path)} lacks {list(elder)}, its parent or elder sibling"
            )
    return tuple(index[path[:-1]] for path in order)


def _parse_widths(tree: str) -> tuple[int, ...]:
    parts = tree.split("-")
    if not all(part.isascii() and part.isdigit() and 1 <= int(part[:3]) <= limits.MOST_DRAFT_TOKENS for part in parts):
        raise InvalidArgumentError(
            f'tree is {shown(tree)}, must be "{DYNAMIC}" or the children of each level, such as "3-2-2-1"'
        )
    if len(parts) > limits.MOST_DRAFT_TOKENS:
        raise InvalidArgumentError(f"tree has {len(parts)} levels, must have at most {limits.MOST_DRAFT_TOKENS}")
    return tuple(int(part) for part in parts)
