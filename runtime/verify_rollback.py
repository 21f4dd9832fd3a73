"""Whatever ended a round, both caches hold what a fresh run would put there: seen by what is generated from them.

Each scenario leaves caches behind that were rolled back, and goes on from them; the same is done without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .options import GenerateKeywords
from .verify_checks import Amount, Check
from .verify_sources import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .engine import Engine
    from .verify_sources import Source

# The prompt of a first generation, the source's options -> the tokens that a second one is to go on from.
Scenario = Callable[["Engine", "list[int]", GenerateKeywords, Amount], "list[int]"]
_HOT = 1.5  # the draft is seldom right


def rollback_checks(
    engine: Engine, prompts: Sequence[Sequence[int]], source: Source, amount: Amount
) -> Iterator[Check]:
    """Every scenario with one source, in the bundle's cache types."""
    for name, scenario in SCENARIOS.items():
        num_right = 0
        lengths = _lengths(engine)
        for index, length in enumerate(lengths):
            prompt = _of_length(prompts[index % len(prompts)], length)
            left = scenario(engine, prompt, source.options, amount)
            num_right += _goes_on_as_fresh(engine, left, source, amount)
            engine.check()
        detail = f"{num_right} of {len(lengths)} prompts around a block's border"
        yield Check(f"rollback, {name}", f"{source.name}, {_cache_types(engine)}", num_right == len(lengths), detail)


def _lengths(engine: Engine) -> list[int]:
    block = engine.info.block_size
    return [length for length in range(block - 3, block + 3) if 2 * length < engine.info.max_context]


def _of_length(prompt: Sequence[int], length: int) -> list[int]:
    return [prompt[at % len(prompt)] for at in range(length)]


def _goes_on_as_fresh(engine: Engine, ids: list[int], source: Source, amount: Amount) -> bool:
    """The same tokens, and from the same drafts, as without anything retained.

    What a source drafts that drafts as much as pays depends on what it still has to read. Such a source may also have
    left a head's cache behind, and then the target reads again what the head has not seen.
    """
    options = GenerateKeywords(max_new_tokens=min(amount.new_tokens, 16), ignore_eos=True)
    alone = options | GenerateKeywords(reuse_prefix=False)
    fresh = engine.generate(ids, **(source.options | alone))
    plain = engine.generate(ids, **(PLAIN | alone))
    reused = engine.generate(ids, **(source.options | options))
    may_read_again = engine.info.has_head and not source.is_fixed
    return (
        reused.token_ids == fresh.token_ids == plain.token_ids
        and (reused.stats.num_prefilled_target < len(ids) or may_read_again)
        and (reused.stats.num_accepted == fresh.stats.num_accepted or not source.is_fixed)
    )


def _long(options: GenerateKeywords, amount: Amount) -> GenerateKeywords:
    return options | GenerateKeywords(max_new_tokens=amount.new_tokens, ignore_eos=True)


def _after_rejections(engine: Engine, prompt: list[int], options: GenerateKeywords, amount: Amount) -> list[int]:
    hot = _long(options, amount) | GenerateKeywords(temperature=_HOT, seed=len(prompt))
    return prompt + list(engine.generate(prompt, **hot).token_ids)


def _after_a_stop(engine: Engine, prompt: list[int], options: GenerateKeywords, amount: Amount) -> list[int]:
    free = engine.generate(prompt, **_long(options, amount)).token_ids
    stop = GenerateKeywords(stop_ids=[free[len(free) // 2]])
    again = engine.generate(prompt, **(_long(options, amount) | stop))
    return prompt + list(again.token_ids) + prompt[:2]


def _after_cancelling(engine: Engine, prompt: list[int], options: GenerateKeywords, amount: Amount) -> list[int]:
    with engine.stream(prompt, **_long(options, amount)) as stream:
        for index, _ in enumerate(stream):
            if index == amount.new_tokens // 3:
                stream.cancel()
        ids = list(stream.result().token_ids)
    return prompt + ids + prompt[:3]


def _after_a_fork(engine: Engine, prompt: list[int], options: GenerateKeywords, amount: Amount) -> list[int]:
    """What the first branch wrote after the fork must not show in the second one."""
    first = engine.generate(prompt, **_long(options, amount)).token_ids
    return prompt + list(first[: len(first) // 2]) + prompt[:5]


SCENARIOS: dict[str, Scenario] = {
    "rejected tokens": _after_rejections,
    "stop inside a block": _after_a_stop,
    "cancelled": _after_cancelling,
    "fork": _after_a_fork,
}


def _cache_types(engine: Engine) -> str:
    return "/".join(model.cache_dtype for model in engine.manifest.models) + " cache"
