"""Faults that users of other engines reported, as tests of the right behaviour here: output, ends, sampling.

Each test names the rows of the public issue log it stands for, and goes over every source of drafts. The other rows:

| rows | where they are tested, or why they cannot occur |
|---|---|
| 1, 7, 8, 110, 112 | native controller_test, test_sources (what is drafted pays), test_field_issues_memory |
| 2, 10, 11, 13, 14, 134 | test_commands (bench: acceptance beside cost, by source and category) |
| 4, 5 | target and draft share the engine's one device |
| 16, 17, 19, 91 | test_greedy_equality, test_trees, test_verify |
| 26, 35, 37, 38 | test_bad_input (another vocabulary), exporter test_pair |
| 28 | test_trees (after every round the caches are a prefill's) |
| 29 | equal tokens have equal accuracy |
| 31, 32 | tests/gpu: passes are recorded on a GPU only |
| 40, 41 | nothing is encoded again; test_field_issues_memory (BOS of a chat) |
| 43, 44 | test_draft_vocabulary |
| 46 | exporter test_heads |
| 47, 50 | questions of training and of what is published |
| 49 | test_commands (bench reports the share outside the models) |
| 61, 62, 94, 95, 97, 98 | runtime test_token_stream, test_stop_strings, test_detokenizer |
| 64 | no batching engine beside the one here |
| 73, 89 | test_sampled_distribution, test_trees |
| 74, 76 | runtime test_verify_statistics, test_verify (each processor with each source) |
| 82 | test_sampled_distribution (a seed repeats itself) |
| 100, 101, 103, 104 | test_structured |
| 106, 107 | native memory_plan_test |
| 109, 115, 116 | no cache is shorter than the context, so none wraps |
| 113 | test_sources (the draft sees a window) |
| 119, 122 | test_cache, test_verify (roll-back) |
| 121 | exporter test_refusals |
| 124, 125 | test_prefix_cache |
| 127, 128 | test_batch |
| 136, 137 | no adapters |
| 139, 140 | test_streaming (origins), test_commands (run --explain) |
| 142 | no pipelined drafting |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish import Engine
from pilotfish.runtime.options import GenerateKeywords
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, PLAIN, Source, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pilotfish import Result

EOS = 257


@pytest.fixture(scope="module")
def pair(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS, num_sequences=4) as engine:
        yield engine


def each_source(engine: Engine) -> Sequence[Source]:
    sources = sources_of(engine)
    assert len(sources) > 5
    return sources


def prompts() -> list[list[int]]:
    return [[(7 * index + 11 * at) % 256 for at in range(3 + 5 * index)] for index in range(6)]


def test_the_end_of_text_inside_a_block_ends_there(pair: Engine) -> None:
    """Rows 52, 53, 55, 56: accepted in the middle of a block, it is the last token, whatever was drafted after it."""
    num_inside = 0
    for source in each_source(pair):
        for bias in (4.0, 6.0, 8.0):
            options = GenerateKeywords(max_new_tokens=60, logit_bias={EOS: bias})
            for prompt in prompts():
                plain = pair.generate(prompt, **(PLAIN | options))
                events = list(pair.stream(prompt, **(source.options | options)))
                ids = tuple(event.token_id for event in events)
                assert (ids, events[-1].finish_reason) == (plain.token_ids, plain.finish_reason), source.name
                assert EOS not in ids[:-1]
                num_inside += ids[-1] == EOS and events[-1].origin == "accepted"
    assert num_inside > 10


def test_the_earliest_of_all_ends_wins(pair: Engine) -> None:
    """Rows 58, 59: a limit, an end-of-text id, a stop id and a stop string that fall close together."""
    free = pair.generate("earliest", **(PLAIN | GenerateKeywords(max_new_tokens=40, ignore_eos=True)))
    at = next(
        index
        for index in range(12, 30)
        if (text := pair.decode(free.token_ids[index : index + 1])).isascii()
        and text not in pair.decode(free.token_ids[:index])
        and free.token_ids[index] not in free.token_ids[:index]
    )
    stop = pair.decode([free.token_ids[at]])
    for source in each_source(pair):
        for length in (at - 1, at, at + 1, at + 2, at + 30):
            limited = GenerateKeywords(max_new_tokens=length, ignore_eos=True)
            options = source.options | limited
            by_id = pair.generate("earliest", **(options | GenerateKeywords(stop_ids=[free.token_ids[at]])))
            by_text = pair.generate("earliest", **(options | GenerateKeywords(stop=stop)))
            expected = free.token_ids[: min(length, at + 1)]
            reason = "stop" if length > at else "length"
            assert (by_id.token_ids, by_id.finish_reason) == (expected, reason), source.name
            assert (by_text.token_ids, by_text.finish_reason) == (expected, reason), source.name


def test_a_least_length_keeps_drafting(pair: Engine) -> None:
    """Rows 65, 67: the end-of-text id is banned position by position, and the draft goes on."""
    options = GenerateKeywords(max_new_tokens=48, min_new_tokens=30, logit_bias={EOS: 9.0})
    for prompt in prompts():
        plain = pair.generate(prompt, **(PLAIN | options))
        assert len(plain.token_ids) >= 31
        assert EOS not in plain.token_ids[:30]
        for source in each_source(pair):
            result = pair.generate(prompt, **(source.options | options))
            assert result.token_ids == plain.token_ids, source.name
            if source.drafts_by_model and "num_draft_tokens" in source.options:
                assert result.stats.num_accepted > 5, source.name


def test_the_last_slots_of_the_context(pair: Engine) -> None:
    """Rows 68, 70: no look-ahead beyond the context, and the draft, which has fewer positions, stops before."""
    limit = pair.info.max_context
    options = GenerateKeywords(max_new_tokens=4 * limit, ignore_eos=True)
    for length in (limit - 40, limit - 9, limit - 2, limit - 1):
        prompt = [(3 * at) % 256 for at in range(length)]
        plain = pair.generate(prompt, **(PLAIN | options))
        for source in each_source(pair):
            result = pair.generate(prompt, **(source.options | options))
            assert (result.token_ids, result.finish_reason) == (plain.token_ids, "context"), source.name
            assert len(result.token_ids) == limit - length
            pair.check()


PROCESSORS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.3},
    "presence and frequency": {"presence_penalty": 1.5, "frequency_penalty": 0.7},
    "in a window": {"repetition_penalty": 1.2, "frequency_penalty": 1.0, "penalty_window": 5},
    "no n-gram twice": {"no_repeat_ngram_size": 2},
    "bias": {"logit_bias": {5: 3.0, 6: float("-inf")}},
    "all": {
        "repetition_penalty": 1.05,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "no_repeat_ngram_size": 3,
        "min_new_tokens": 20,
        "logit_bias": {9: 2.0},
    },
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_penalties_see_every_token_of_a_block(pair: Engine, name: str) -> None:
    """Rows 77, 79, 80, 86: neither ignored, nor counted once a round, nor left over from a rejected token."""
    options = GenerateKeywords(max_new_tokens=40, ignore_eos=True, **PROCESSORS[name])  # type: ignore[typeddict-item]
    free = GenerateKeywords(max_new_tokens=40, ignore_eos=True)
    num_changed = 0
    for prompt in prompts():
        plain = pair.generate(prompt, **(PLAIN | options))
        num_changed += plain.token_ids != pair.generate(prompt, **(PLAIN | free)).token_ids
        for source in each_source(pair):
            assert pair.generate(prompt, **(source.options | options)).token_ids == plain.token_ids, source.name
    assert num_changed > 0


def test_a_seed_changes_samples_and_nothing_greedy(pair: Engine) -> None:
    """Row 83."""
    for source in each_source(pair):
        for temperature, num_different in ((0.0, 1), (1.0, 4)):
            options = source.options | GenerateKeywords(max_new_tokens=30, temperature=temperature, ignore_eos=True)
            texts = {pair.generate("seed", **(options | GenerateKeywords(seed=seed))).token_ids for seed in range(4)}
            assert len(texts) == num_different, source.name


def test_requests_beside_each_other_do_not_know_of_each_other(pair: Engine) -> None:
    """Rows 85, 127, 128, 130, 131: own seeds, own caches, own acceptance, with neighbours or alone."""
    for source in each_source(pair):
        requests = [
            (prompt, source.options | GenerateKeywords(max_new_tokens=30, temperature=temperature, seed=index))
            for index, (prompt, temperature) in enumerate(zip(prompts()[:4], (0.0, 1.0, 1.0, 0.0), strict=True))
        ]
        alone = [outcome(pair.generate(prompt, **options)) for prompt, options in requests]
        streams = [pair.stream(prompt, **options) for prompt, options in requests]
        running = list(streams)
        while running:
            running = [stream for stream in running if next(stream, None) is not None]
        beside = [outcome(stream.result()) for stream in streams]
        if "num_draft_tokens" in source.options or "tree" in source.options:
            assert beside == alone, source.name
        else:  # how much is drafted follows from what was accepted before, in any request
            assert [one[:2] for one in beside] == [one[:2] for one in alone], source.name


def outcome(result: Result) -> tuple[Any, ...]:
    stats = result.stats
    return result.token_ids, result.finish_reason, stats.num_drafted, stats.num_accepted, stats.num_rounds


def test_fifty_requests_in_a_row_are_fifty_times_the_first(pair: Engine) -> None:
    """Rows 25, 88: no state leaks from one request to the next, neither into tokens nor into acceptance."""
    for source in each_source(pair):
        options = source.options | GenerateKeywords(max_new_tokens=24, ignore_eos=True)
        first = outcome(pair.generate("row", **options))
        for index in range(50):
            if index % 3 == 0:
                pair.generate([index] * (1 + index), **(options | GenerateKeywords(temperature=1.0, seed=index)))
            found = outcome(pair.generate("row", **options))
            assert found[0] == first[0], source.name
            if source.drafts_by_model and source.name != "draft":
                assert found == first, source.name


def test_logprobs_are_the_targets_for_every_source(pair: Engine) -> None:
    """Rows 62, 92: of each emitted token, accepted or not; the likeliest ids too, and not one more than tokens."""
    for source in each_source(pair):
        options = source.options | GenerateKeywords(max_new_tokens=30, temperature=1.0, seed=3, logprobs=3)
        prompt = prompts()[2]
        result = pair.generate(prompt, **options)
        ids = list(result.token_ids)
        logits = pair.logits(prompt + ids)[len(prompt) - 1 : -1].astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(result.logprobs, expected[np.arange(len(ids)), ids], atol=1e-4)
        likeliest = np.argsort(-expected, axis=1, kind="stable")[:, :3]
        assert [[one.token_id for one in row] for row in result.top_logprobs] == likeliest.tolist(), source.name


def test_rates_are_rates(pair: Engine) -> None:
    """Row 133: nothing accepted that was not drafted, in any round and any source."""
    for source in each_source(pair):
        for prompt in prompts():
            stats = pair.generate(prompt, **(source.options | GenerateKeywords(max_new_tokens=30))).stats
            assert 0 <= stats.acceptance_rate <= 1
            assert stats.num_accepted <= min(stats.num_drafted, stats.num_new_tokens)
            assert stats.num_rounds <= stats.num_new_tokens
            assert 1 <= stats.acceptance_length <= MAX_DRAFT_TOKENS + 1 or stats.num_rounds == 0
