"""What a generation is to draft with: whether its options fit together, and whether the bundle has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.bindings import InvalidArgumentError, limits

from .draft_tree import tree_size
from .option_checks import (
    check_sequence,
    is_greedy,
    require,
    require_number,
    shown,
)

if TYPE_CHECKING:
    from .options import GenerateOptions


def check_drafting(options: GenerateOptions) -> None:
    """Refuses what no bundle can draft.

    Raises:
        InvalidArgumentError: a value outside its range, or options that contradict each other.
    """
    count = options.num_draft_tokens
    if options.tree is not None and count is not None:
        raise InvalidArgumentError(f"tree is {shown(options.tree)} and num_draft_tokens {count}: give one")
    if options.source == "plain" and count:
        raise InvalidArgumentError(f"num_draft_tokens is {count}, but the source 'plain' drafts nothing")
    tree_size(options.tree, options.tree_nodes, options.tree_depth, max_draft_tokens=limits.MOST_DRAFT_TOKENS)
    _check_typical(options)


def _check_typical(options: GenerateOptions) -> None:
    pair = options.typical_acceptance
    if pair is None:
        return
    check_sequence("typical_acceptance", pair, "two numbers")
    require("typical_acceptance", pair, len(pair) == 2, "two numbers")  # noqa: PLR2004
    require_number("typical_acceptance epsilon", pair[0], "in (0, 1)", lambda x: 0 < x < 1)
    require_number("typical_acceptance delta", pair[1], "in (0, 1]", lambda x: 0 < x <= 1)
    if is_greedy(options.temperature):
        raise InvalidArgumentError("typical_acceptance needs a temperature above 0: greedy decoding is exact")


def check_source(options: GenerateOptions, *, has_draft: bool, has_head: bool) -> None:
    """Refuses what the bundle cannot draft.

    Args:
        options: what is asked for.
        has_draft: whether the bundle has a draft model.
        has_head: whether it has a head.

    Raises:
        InvalidArgumentError: a source that is not there, or that drafts no tree.
    """
    if options.tree is not None and options.source in ("plain", "lookup"):
        raise InvalidArgumentError(
            f"tree is {shown(options.tree)}, but the source {options.source!r}: the draft model or the head drafts it"
        )
    by_head = options.source in ("head", "lookup+head")
    if by_head and not has_head:
        raise InvalidArgumentError(
            f"source is {shown(options.source)}, but the bundle has no head: export one with --head"
        )
    if by_head or has_draft or (has_head and options.source == "auto"):
        return
    if options.tree is not None:
        raise InvalidArgumentError(
            f"tree is {shown(options.tree)}, but the bundle has no draft: export one with --draft or --head"
        )
    if options.source in ("draft", "lookup+draft"):
        raise InvalidArgumentError(
            f"source is {shown(options.source)}, but the bundle has no draft: export one with --draft"
        )
    if options.source == "auto" and options.num_draft_tokens:
        raise InvalidArgumentError(
            f"num_draft_tokens is {options.num_draft_tokens}, but the bundle has no draft: export one with --draft, "
            "or name the source 'lookup'"
        )
