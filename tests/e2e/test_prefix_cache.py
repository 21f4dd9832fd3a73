"""A request that begins like an earlier one starts from its caches, both models', and gives the same tokens."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from pilotfish import Engine
from pilotfish.bindings import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pilotfish import Result

NUM_SEQUENCES = 2
DRAFT_TOKENS = 4


@pytest.fixture
def fresh(tiny_bundle: Path) -> Iterator[Engine]:
    """An engine that has generated nothing yet."""
    with Engine(tiny_bundle, threads=1, num_sequences=NUM_SEQUENCES) as engine:
        yield engine


def ids(*text: str) -> list[int]:
    return [byte for part in text for byte in part.encode()]


def prefilled(result: Result) -> tuple[int, int]:
    return result.stats.num_prefilled_target, result.stats.num_prefilled_draft


def test_a_turn_prefills_only_its_new_tokens_in_both_models(fresh: Engine) -> None:
    history = ids("the first question")
    first = fresh.generate(history, max_new_tokens=20, num_draft_tokens=DRAFT_TOKENS, ignore_eos=True)
    assert prefilled(first) == (len(history), len(history))
    for turn in range(4):
        answer = list(fresh.generate(history, max_new_tokens=20, num_draft_tokens=4, ignore_eos=True).token_ids)
        question = ids(f"question {turn}")
        history = history + answer + question
        result = fresh.generate(history, max_new_tokens=20, num_draft_tokens=DRAFT_TOKENS, ignore_eos=True)
        # The last token emitted was never run through a model, the draft's last but one perhaps neither.
        target, draft = prefilled(result)
        assert target == len(question) + 1
        assert target <= draft <= target + 1
        fresh.check()


def test_the_same_prompt_again_runs_one_token(fresh: Engine) -> None:
    for num_prefilled in (len(ids("again and again")), 1):
        result = fresh.generate("again and again", max_new_tokens=8, num_draft_tokens=2)
        assert prefilled(result) == (num_prefilled, num_prefilled)


def test_reuse_changes_no_token_and_no_counter(fresh: Engine) -> None:
    """Conversations that fork at every length, so that blocks are shared whole and copied at each offset."""
    chooser = random.Random(3)
    trunk = [chooser.randrange(256) for _ in range(100)]
    fresh.generate(trunk, max_new_tokens=30, num_draft_tokens=DRAFT_TOKENS, ignore_eos=True)
    for length, draft_tokens in zip(range(1, 100, 3), itertools.cycle((0, 1, 4, None))):
        fresh.generate(trunk, max_new_tokens=1, num_draft_tokens=DRAFT_TOKENS)  # the most recently used, whole
        prompt = trunk[:length] + [chooser.randrange(256) for _ in range(5)]
        options = {"max_new_tokens": 24, "num_draft_tokens": draft_tokens, "ignore_eos": True}
        reused = fresh.generate(prompt, **options)
        alone = fresh.generate(prompt, **options, reuse_prefix=False)
        assert reused.token_ids == alone.token_ids
        assert reused.stats.num_prefilled_target <= 5 < alone.stats.num_prefilled_target
        counters = [(one.stats.num_rounds, one.stats.num_drafted, one.stats.num_accepted) for one in (reused, alone)]
        # What auto drafts also follows from what the engine has seen before; its tokens do not.
        assert draft_tokens is None or counters[0] == counters[1]
        fresh.check()


def test_sampled_tokens_are_the_same_with_and_without_reuse(fresh: Engine) -> None:
    for seed in range(6):
        options = {"max_new_tokens": 24, "num_draft_tokens": 3, "temperature": 0.9, "seed": seed, "ignore_eos": True}
        prompt = ids("a shared beginning ", f"and {seed}")
        assert fresh.generate(prompt, **options).token_ids == fresh.generate(prompt, **options).token_ids
        assert (
            fresh.generate(prompt, **options).token_ids
            == fresh.generate(prompt, **options, reuse_prefix=False).token_ids
        )


def test_a_draft_that_was_not_used_catches_up_and_accepts_as_ever(fresh: Engine) -> None:
    """Never the target's cache with a draft that does not know it."""
    prompt = ids("plain first, drafted later")
    plain = fresh.generate(prompt, max_new_tokens=30, num_draft_tokens=0, ignore_eos=True)
    assert prefilled(plain) == (len(prompt), 0)
    longer = prompt + list(plain.token_ids) + ids("more")
    alone = fresh.generate(longer, max_new_tokens=40, num_draft_tokens=4, ignore_eos=True, reuse_prefix=False)
    drafted = fresh.generate(longer, max_new_tokens=40, num_draft_tokens=4, ignore_eos=True)
    assert prefilled(drafted) == (5, len(longer))
    assert (drafted.token_ids, drafted.stats.num_accepted) == (alone.token_ids, alone.stats.num_accepted)


def test_without_reuse_nothing_is_taken_and_nothing_left(fresh: Engine) -> None:
    for _ in range(2):
        result = fresh.generate("on its own", max_new_tokens=8, num_draft_tokens=2, reuse_prefix=False)
        assert prefilled(result) == (len("on its own"), len("on its own"))
        assert fresh.info.num_retained_blocks == 0
        assert fresh.info.num_free_blocks == fresh.info.num_blocks


def test_an_answer_that_was_cut_by_a_stop_string_goes_on_correctly(fresh: Engine) -> None:
    free = fresh.generate("stops", max_new_tokens=40, num_draft_tokens=0, ignore_eos=True, reuse_prefix=False)
    stop = next(
        pair
        for pair in (free.text[at : at + 2] for at in range(5, len(free.text) - 1))
        if "\N{REPLACEMENT CHARACTER}" not in pair
    )
    cut = fresh.generate("stops", max_new_tokens=40, num_draft_tokens=8, ignore_eos=True, stop=stop)
    assert cut.finish_reason == "stop"
    prompt = [*fresh.encode("stops"), *cut.token_ids, *ids("next")]
    reused = fresh.generate(prompt, max_new_tokens=20, num_draft_tokens=4, ignore_eos=True)
    alone = fresh.generate(prompt, max_new_tokens=20, num_draft_tokens=4, ignore_eos=True, reuse_prefix=False)
    assert reused.token_ids == alone.token_ids
    assert reused.stats.num_prefilled_target <= len("next") + 1


def test_retained_blocks_make_room_for_whoever_needs_them(fresh: Engine) -> None:
    """Many long requests, one after another and side by side: none is refused for what earlier ones left."""
    limit = fresh.info.max_context
    for first in range(12):
        with fresh.stream([first] * 100, max_new_tokens=limit, ignore_eos=True) as one:
            next(one)
            with fresh.stream([first, 99] * 50, max_new_tokens=limit, ignore_eos=True) as other:
                next(other)
                fresh.check()
                info = fresh.info
                assert info.num_free_blocks + info.num_retained_blocks < info.num_blocks
        fresh.check()
        info = fresh.info
        assert info.num_free_blocks + info.num_retained_blocks == info.num_blocks
        assert info.num_retained_blocks > 0


def test_the_oldest_goes_first(fresh: Engine) -> None:
    block, total = fresh.info.block_size, fresh.info.num_blocks
    prompts = [[letter] * (2 * block) for letter in range(total)]  # three blocks each with what is generated
    for prompt in prompts:
        fresh.generate(prompt, max_new_tokens=2, num_draft_tokens=0, ignore_eos=True)
    newest = fresh.generate(prompts[-1], max_new_tokens=2, num_draft_tokens=0, ignore_eos=True)
    assert newest.stats.num_prefilled_target == 1
    oldest = fresh.generate(prompts[0], max_new_tokens=2, num_draft_tokens=0, ignore_eos=True)
    assert oldest.stats.num_prefilled_target == 2 * block


def test_the_plan_does_not_know_of_it(fresh: Engine) -> None:
    before = fresh.info
    fresh.generate("x" * 60, max_new_tokens=30)
    assert fresh.info.total_bytes == before.total_bytes
    assert before.num_retained_blocks == 0 < fresh.info.num_retained_blocks


def test_chat_reuses_the_conversation(fresh: Engine) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    first = fresh.chat(messages, max_new_tokens=12, num_draft_tokens=2)
    num_before = len(fresh.encode_chat(messages))
    assert first.stats.num_prefilled_target == num_before
    messages += [{"role": "assistant", "content": "well"}, {"role": "user", "content": "and?"}]
    second = fresh.chat(messages, max_new_tokens=12, num_draft_tokens=2)
    assert second.stats.num_prefilled_target <= len(fresh.encode_chat(messages)) - num_before
    assert second.stats.num_prefilled_draft <= len(fresh.encode_chat(messages)) - num_before


def test_a_value_that_is_no_flag_is_refused(fresh: Engine) -> None:
    with pytest.raises(InvalidArgumentError, match="reuse_prefix"):
        fresh.generate("x", reuse_prefix=2)  # type: ignore[arg-type]
