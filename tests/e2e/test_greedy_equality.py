"""Greedy speculation gives plain decoding's tokens, one for one, whatever is drafted."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from pilotfish import Engine

if TYPE_CHECKING:
    from pathlib import Path

DRAFT_TOKENS: tuple[int | None, ...] = (*range(1, 9), None)  # None: as many as pay off
NUM_PROMPTS = 60
TOPICS = ("the moon", "bread", "a violin", "rain", "the sea", "chess", "a train", "winter", "the heart", "glass")
TASKS = (
    "Explain {} to a child.",
    "Write one sentence about {}.",
    "List three facts about {}:\n1.",
    "Q: What is {} good for?\nA:",
    "Once there was someone who feared {}, and",
)
REAL_PROMPTS = [task.format(topic) for topic, task in itertools.product(TOPICS, TASKS)]


def tiny_prompts() -> list[list[int]]:
    """Random ids of every length from 1 to NUM_PROMPTS, so that block borders fall everywhere."""
    chooser = random.Random(5)
    return [[chooser.randrange(256) for _ in range(length)] for length in range(1, NUM_PROMPTS + 1)]


@pytest.mark.parametrize("num_draft_tokens", DRAFT_TOKENS)
def test_tiny_pair(engine: Engine, num_draft_tokens: int | None) -> None:
    drafted = accepted = 0
    for prompt in tiny_prompts():
        plain = engine.generate(prompt, max_new_tokens=40, num_draft_tokens=0)
        speculative = engine.generate(prompt, max_new_tokens=40, num_draft_tokens=num_draft_tokens)
        assert speculative.token_ids == plain.token_ids
        assert (speculative.text, speculative.finish_reason) == (plain.text, plain.finish_reason)
        drafted += speculative.stats.num_drafted
        accepted += speculative.stats.num_accepted
    assert 0.02 * drafted < accepted < 0.98 * drafted


@pytest.mark.parametrize("num_draft_tokens", DRAFT_TOKENS)
def test_self_draft_accepts_everything(self_bundle: Path, num_draft_tokens: int | None) -> None:
    with Engine(self_bundle, threads=2) as engine:
        for prompt in tiny_prompts()[::6]:
            plain = engine.generate(prompt, max_new_tokens=50, num_draft_tokens=0)
            result = engine.generate(prompt, max_new_tokens=50, num_draft_tokens=num_draft_tokens)
            assert result.token_ids == plain.token_ids
            if num_draft_tokens is None:
                continue  # a draft as large as its target never pays, and what is looked up may be wrong
            if result.finish_reason == "length":
                assert result.stats.num_accepted == result.stats.num_drafted > 0


def test_to_the_end_of_the_context(engine: Engine) -> None:
    """The draft has fewer positions than the target: drafting stops there, decoding does not."""
    limit = engine.info.max_context
    plain = engine.generate([65, 66], max_new_tokens=10 * limit, num_draft_tokens=0, ignore_eos=True)
    assert plain.finish_reason == "context"
    assert len(plain.token_ids) == limit - 2
    for num_draft_tokens in (1, 3, 8, None):
        result = engine.generate(
            [65, 66], max_new_tokens=10 * limit, num_draft_tokens=num_draft_tokens, ignore_eos=True
        )
        assert result.token_ids == plain.token_ids
        assert result.finish_reason == "context"


def test_a_prompt_has_the_same_bits_in_passes_of_any_width(tiny_bundle: Path) -> None:
    prompt = [(7 * i) % 251 for i in range(150)]
    found = set()
    for chunk in (None, 1, 37, 64, 1000):
        with Engine(tiny_bundle, threads=2, prefill_chunk=chunk, calibration="off") as engine:
            assert engine.info.prefill_chunk == (chunk or 256)
            events = list(engine.stream(prompt, max_new_tokens=8, num_draft_tokens=3, ignore_eos=True))
            found.add(tuple((event.token_id, event.logprob) for event in events))
    assert len(found) == 1


@pytest.mark.parametrize("num_draft_tokens", [0, 1, 5, 8, None])
def test_the_output_is_as_long_as_asked(engine: Engine, num_draft_tokens: int | None) -> None:
    longest = engine.generate("length", max_new_tokens=24, num_draft_tokens=0, ignore_eos=True).token_ids
    for length in range(1, 25):
        result = engine.generate("length", max_new_tokens=length, num_draft_tokens=num_draft_tokens, ignore_eos=True)
        assert result.token_ids == longest[:length]
        assert result.finish_reason == "length"


@pytest.mark.parametrize("num_draft_tokens", [0, 1, 5, 8, None])
def test_a_stop_id_ends_the_text_inside_a_block(engine: Engine, num_draft_tokens: int | None) -> None:
    free = engine.generate("stop", max_new_tokens=40, num_draft_tokens=0, ignore_eos=True).token_ids
    for index in range(len(free)):
        first = free.index(free[index])
        result = engine.generate(
            "stop", max_new_tokens=40, num_draft_tokens=num_draft_tokens, ignore_eos=True, stop_ids=[free[index]]
        )
        assert result.token_ids == free[: first + 1]
        assert result.finish_reason == "stop"


@pytest.mark.real
def test_real_pair(real_engine: Engine) -> None:
    """Fifty prompts, every K from 1 to 8, and as many as pay off."""
    assert len(REAL_PROMPTS) == 50
    for index, prompt in enumerate(REAL_PROMPTS):
        ids = (
            real_engine.encode_chat([{"role": "user", "content": prompt}]) if index % 2 else real_engine.encode(prompt)
        )
        plain = real_engine.generate(ids, max_new_tokens=16, num_draft_tokens=0)
        for num_draft_tokens in DRAFT_TOKENS:
            result = real_engine.generate(ids, max_new_tokens=16, num_draft_tokens=num_draft_tokens)
            assert result.token_ids == plain.token_ids, (prompt, num_draft_tokens)


@pytest.mark.real
def test_real_pair_over_a_long_text(real_engine: Engine) -> None:
    prompt = "Write a long story about a lighthouse keeper and the ships that pass at night."
    plain = real_engine.chat([{"role": "user", "content": prompt}], max_new_tokens=300, num_draft_tokens=0)
    result = real_engine.chat([{"role": "user", "content": prompt}], max_new_tokens=300, num_draft_tokens=4)
    assert result.token_ids == plain.token_ids
    assert result.stats.num_accepted > 0
