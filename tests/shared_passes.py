"""Generations in passes that they share, beside the same ones alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish import Engine, Result


def parts(result: Result) -> tuple[object, ...]:
    """All that a user sees; as text what may be NaN."""
    return result.token_ids, repr(result.logprobs), result.top_logprobs, result.text, result.finish_reason


def counts(result: Result) -> tuple[int, int, int]:
    return result.stats.num_rounds, result.stats.num_drafted, result.stats.num_accepted


def check_the_same_together(engine: Engine, prompts: Sequence[Sequence[int]], **options: Any) -> None:
    """Together each has the bits that it has alone, and accepts as much where it drafts as much."""
    alone = [engine.generate(prompt, **options) for prompt in prompts]
    together = engine.generate_batch(prompts, **options)
    assert [parts(result) for result in together] == [parts(result) for result in alone]
    if options.get("num_draft_tokens") or options.get("tree"):  # what else is drafted depends on what rows cost
        assert [counts(result) for result in together] == [counts(result) for result in alone]
    engine.check()
