"""Conversations share the blocks of their beginnings: nothing is lost by switching sources, and nothing changes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from shared_passes import counts

from pilotfish import Engine

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish import Result

# Of one conversation: what a turn drafts with, and how much of that follows from what the caches hold alone.
SOURCES: tuple[dict[str, Any], ...] = (
    {"source": "plain"},
    {"source": "draft", "num_draft_tokens": 3},
    {"source": "head", "num_draft_tokens": 3},
    {"source": "head", "tree": "dynamic", "tree_nodes": 8},
    {"source": "lookup", "num_draft_tokens": 4},
    {"source": "draft", "num_draft_tokens": 2, "temperature": 0.9, "seed": 5},
    {"source": "auto"},
)
NUM_CONVERSATIONS = 6
NUM_TURNS = 60


def seen(result: Result) -> tuple[object, ...]:
    """All bits that a user gets."""
    return result.token_ids, repr(result.logprobs), result.text, result.finish_reason


def opened(bundle: Path, **arguments: Any) -> Engine:
    return Engine(bundle, threads=1, calibration="off", max_context=256, **arguments)


@pytest.mark.parametrize("draft_window", [0, 64], ids=["whole", "window"])
def test_conversations_in_random_order_on_a_small_cache(both: Path, draft_window: int) -> None:
    """With evictions, forks, cancelled and cut answers: text and logprobs are those of an engine that keeps nothing."""
    chooser = random.Random(draft_window)
    options: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True}
    trunk = [chooser.randrange(256) for _ in range(40)]
    starts = [trunk[: chooser.choice((0, 20, 31, 32, 33, 40))] + [index] * 3 for index in range(NUM_CONVERSATIONS)]
    conversations = [list(start) for start in starts]
    num_reused = num_alone = 0
    with opened(both, num_sequences=2, draft_window=draft_window) as engine, opened(both) as fresh:
        for _ in range(NUM_TURNS):
            index = chooser.randrange(NUM_CONVERSATIONS)
            if len(conversations[index]) > 180:
                conversations[index] = list(starts[index])
            prompt = conversations[index] + [chooser.randrange(256) for _ in range(chooser.randrange(1, 20))]
            drafting = chooser.choice(SOURCES)
            if chooser.random() < 0.2:
                with engine.stream(prompt, **options, **drafting) as stream:
                    for _ in range(chooser.randrange(1, 8)):
                        next(stream)
                    stream.cancel()
            result = engine.generate(prompt, **options, **drafting)
            alone = fresh.generate(prompt, **options, **drafting, reuse_prefix=False)
            assert seen(result) == seen(alone)
            if draft_window == 0 and "num_draft_tokens" in drafting:
                assert counts(result) == counts(alone)
            num_reused += result.stats.num_prefilled_target
            num_alone += alone.stats.num_prefilled_target
            conversations[index] = prompt + list(result.token_ids)
            engine.check()
    assert num_reused < 0.5 * num_alone


def test_together_on_a_small_cache(both: Path) -> None:
    """The same of generations that share passes and the blocks of their beginnings."""
    chooser = random.Random(4)
    trunk = [chooser.randrange(256) for _ in range(100)]
    with opened(both, num_sequences=4) as engine, opened(both) as fresh:
        for turn in range(6):
            prompts = [[*trunk[: chooser.randrange(30, 100)], turn, each] for each in range(8)]
            for drafting in (SOURCES[1], SOURCES[2], SOURCES[6]):
                options: dict[str, Any] = {"max_new_tokens": 8, "ignore_eos": True} | drafting
                together = engine.generate_batch(prompts, **options)
                alone = [fresh.generate(prompt, reuse_prefix=False, **options) for prompt in prompts]
                assert [seen(each) for each in together] == [seen(each) for each in alone]
                engine.check()


def test_switching_the_source_runs_no_known_prefix_again(both: Path) -> None:
    """Plain, then auto, the draft model and the head: the target runs what is new, and what each model lacks is its
    own to catch up with."""
    chooser = random.Random(1)
    prompt = [chooser.randrange(256) for _ in range(111)]
    with opened(both, num_sequences=4) as engine:
        first = engine.generate(prompt, max_new_tokens=20, ignore_eos=True, source="plain")
        assert first.stats.num_prefilled_target == len(prompt)
        history = prompt + list(first.token_ids)
        for drafting in (SOURCES[6], SOURCES[1], SOURCES[2], SOURCES[0], SOURCES[3], SOURCES[4], SOURCES[2]):
            again = engine.generate(prompt, max_new_tokens=4, ignore_eos=True, **drafting)
            # A head reads the streams of a token together with the token after it: it lacks those of the last one.
            assert again.stats.num_prefilled_target <= 2
            question = [chooser.randrange(256) for _ in range(7)]
            result = engine.generate(history + question, max_new_tokens=8, ignore_eos=True, **drafting)
            assert result.stats.num_prefilled_target <= len(question) + 2
            history += question + list(result.token_ids)
            engine.check()


def test_a_prompt_that_was_cancelled_or_failed_is_not_run_again(both: Path) -> None:
    prompt = [index % 250 for index in range(200)]
    with opened(both, num_sequences=2, prefill_chunk=32) as engine:
        stream = engine.stream(prompt, max_new_tokens=4)
        other = engine.stream([3], max_new_tokens=50, ignore_eos=True, source="plain")
        next(other)
        engine.step_together([stream, other])
        engine.step_together([stream, other])
        stream.cancel()
        stream.close()
        result = engine.generate(prompt, max_new_tokens=4, source="head", num_draft_tokens=2)
        assert result.stats.num_prefilled_target <= len(prompt) - 63
        other.close()
        engine.check()


def test_the_blocks_of_a_beginning_count_once(both: Path) -> None:
    with opened(both, num_sequences=4) as engine:
        block = engine.info.block_size
        trunk = [index % 200 for index in range(4 * block + 4)]
        for branch in range(5):
            engine.generate([*trunk, 201 + branch, 9], max_new_tokens=2, ignore_eos=True)
        assert engine.info.num_retained_blocks == 4 + 5
        engine.check()
