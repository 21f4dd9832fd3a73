"""Faults that users of other engines reported in 2026, as tests of the right behaviour here: each names the report."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from head_bundles import agreeing_bundle
from tiny_bundles import byte_tokenizer

from pilotfish import Engine
from pilotfish.runtime.options import GenerateKeywords
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, PLAIN, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pilotfish import Result

TOOL_PROMPT = json.dumps(
    [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("get", "set")]
)


@pytest.fixture(scope="module")
def pair(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS, num_sequences=2) as engine:
        yield engine
        engine.check()


@pytest.fixture(scope="module")
def eagle_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agreeing_bundle(tmp_path_factory.mktemp("eagle3"), "eagle3", byte_tokenizer())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rejected_drafts_are_no_part_of_the_length(pair: Engine, temperature: float) -> None:
    """google-ai-edge/LiteRT-LM#2816: 60 of 128 tokens came. Every source gives exactly as many as were asked for."""
    options = GenerateKeywords(max_new_tokens=128, ignore_eos=True, temperature=temperature, seed=5)
    for source in sources_of(pair):
        result = pair.generate("exactly", **(source.options | options))
        assert (len(result.token_ids), result.finish_reason) == (128, "length"), source.name


def test_looked_up_tool_markers_change_nothing(pair: Engine) -> None:
    """vllm-project/vllm#40875: short matches on tool markers corrupted calls. Lookup's text is plain's."""
    prompt = f"{TOOL_PROMPT}\n<tool_call>\n{{"
    for temperature in (0.0, 0.8):
        options = GenerateKeywords(max_new_tokens=48, ignore_eos=True, temperature=temperature, seed=2)
        plain = pair.generate(prompt, **(PLAIN | options))
        for source in ("lookup", "lookup+draft"):
            result = pair.generate(prompt, **options, source=source)
            assert result.token_ids == plain.token_ids, source


@pytest.mark.parametrize("prefill_chunk", [32, 64, 200])
def test_a_head_reads_prompts_longer_than_a_chunk(eagle_bundle: Path, prefill_chunk: int) -> None:
    """ggml-org/llama.cpp#24637: EAGLE-3 crashed on prompts longer than a batch."""
    prompt = [(11 * at + at // 7) % 256 for at in range(180)]
    options = GenerateKeywords(max_new_tokens=40, ignore_eos=True)
    with Engine(eagle_bundle, threads=1, prefill_chunk=prefill_chunk, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        plain = engine.generate(prompt, **(PLAIN | options))
        for source in sources_of(engine):
            result = engine.generate(prompt, **(source.options | options))
            assert result.token_ids == plain.token_ids, source.name
            if source.needs_head and source.is_fixed:
                assert result.stats.num_accepted > 0, source.name
        engine.check()


def test_a_lookup_that_finds_nothing_and_then_a_copy(pair: Engine) -> None:
    """spiritbuun/buun-llama-cpp#74: empty n-gram drafts broke an invariant of the round after."""
    chooser = random.Random(3)
    noise = [chooser.randrange(256) for _ in range(60)]
    for prompt in (noise, noise + noise[:30]):
        options = GenerateKeywords(max_new_tokens=32, ignore_eos=True)
        plain = pair.generate(prompt, **(PLAIN | options))
        result = pair.generate(prompt, **options, source="lookup", num_draft_tokens=8)
        assert result.token_ids == plain.token_ids
        pair.check()


@pytest.mark.parametrize("reuse_prefix", [True, False])
def test_a_greedy_conversation_replays(pair: Engine, reuse_prefix: bool) -> None:  # noqa: FBT001 - a test's parameter
    """unslothai/unsloth#10234: two replays of a greedy conversation differed. Three turns, twice, are equal."""

    def replay() -> list[Result]:
        messages, answers = [], []
        for turn in ("one", "two", "three"):
            messages.append({"role": "user", "content": turn})
            answers.append(pair.chat(messages, max_new_tokens=20, reuse_prefix=reuse_prefix))
            messages.append({"role": "assistant", "content": answers[-1].text})
        return answers

    first, second = replay(), replay()
    assert [answer.token_ids for answer in first] == [answer.token_ids for answer in second]
