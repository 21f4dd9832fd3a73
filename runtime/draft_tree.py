"""The token tree that a generation asks for: tree="dynamic", with so many tokens in so many levels."""

from __future__ import annotations

from pilotfish.bindings import InvalidArgumentError, limits

from .option_checks import check_int, require, shown

DYNAMIC = "dynamic"


def tree_size(tree: str | None, nodes: int | None, depth: int | None, *, max_draft_tokens: int) -> tuple[int, int]:
    """Tokens and levels of the tree; none of either where a chain is asked for.

    Args:
        tree: "dynamic", or None for a chain.
        nodes: tokens of the tree; None takes all that the engine has room for.
        depth: levels of the tree; None takes the library's number, or as many as it has tokens.
        max_draft_tokens: what the engine has room for.

    Raises:
        InvalidArgumentError: another tree, a number outside its range, or one without a tree.
    """
    require("tree", tree, tree is None or (isinstance(tree, str) and tree == DYNAMIC), f'"{DYNAMIC}"')
    if tree is None:
        for name, value in (("tree_nodes", nodes), ("tree_depth", depth)):
            if value is not None:
                raise InvalidArgumentError(f'{name} is {shown(value)}, but only tree="{DYNAMIC}" has it')
        return 0, 0
    nodes = max_draft_tokens if nodes is None else nodes
    check_int("tree_nodes", nodes, 1, max_draft_tokens)
    depth = min(limits.DEFAULT_TREE_DEPTH, nodes) if depth is None else depth
    check_int("tree_depth", depth, 1, nodes)
    return nodes, depth
