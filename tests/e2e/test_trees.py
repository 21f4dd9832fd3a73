"""Token trees: greedy output is plain decoding's, caches after a round are a prefill's, bad trees are refused."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from shared_passes import check_the_same_together

from pilotfish import Engine
from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.draft_tree import tree_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pilotfish.runtime.options import GenerateKeywords

MOST_TOKENS = 63
TREES: tuple[GenerateKeywords, ...] = (
    {"tree": "dynamic"},
    {"tree": "dynamic", "tree_nodes": 1},
    {"tree": "dynamic", "tree_nodes": 5, "tree_depth": 1},
    {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
    {"tree": "dynamic", "tree_nodes": 40, "tree_depth": 40},
    {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 8, "source": "lookup+draft"},
)
NAMES = ["-".join(str(value) for value in tree.values()) for tree in TREES]
NUM_PROMPTS = 54


@pytest.fixture(scope="module")
def wide(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=2, max_draft_tokens=MOST_TOKENS) as engine:
        yield engine
        engine.check()


def prompts() -> list[list[int]]:
    chooser = random.Random(9)
    return [[chooser.randrange(256) for _ in range(length)] for length in range(1, NUM_PROMPTS + 1)]


@pytest.mark.parametrize("tree", TREES, ids=NAMES)
def test_greedy_trees_give_plain_decodings_tokens(wide: Engine, tree: GenerateKeywords) -> None:
    num_accepted = 0
    for prompt in prompts():
        plain = wide.generate(prompt, max_new_tokens=24, num_draft_tokens=0)
        result = wide.generate(prompt, max_new_tokens=24, **tree)
        assert (result.token_ids, result.finish_reason) == (plain.token_ids, plain.finish_reason)
        num_accepted += result.stats.num_accepted
    assert num_accepted > 0


def test_larger_trees_accept_more(wide: Engine) -> None:
    def length(**drafting: Any) -> float:
        stats = [wide.generate(prompt, max_new_tokens=40, ignore_eos=True, **drafting).stats for prompt in prompts()]
        return sum(each.num_new_tokens - 1 for each in stats) / sum(each.num_rounds for each in stats)

    small, large = ({"tree": "dynamic", "tree_nodes": nodes} for nodes in (4, 33))
    assert length(num_draft_tokens=4) < length(**small) < length(**large)


def test_self_drafts_are_accepted_down_to_the_leaves(self_bundle: Path) -> None:
    """The likeliest path is in each tree of one level; deeper ones may hold other paths that are likelier."""
    with Engine(self_bundle, threads=2, max_draft_tokens=33) as engine:
        level: GenerateKeywords = {"tree": "dynamic", "tree_nodes": 5, "tree_depth": 1}
        for drafting, depth in ((level, 1), ({"num_draft_tokens": 4}, 4)):
            stats = engine.generate("self", max_new_tokens=1 + 8 * (depth + 1), ignore_eos=True, **drafting).stats
            assert stats.acceptance_length == depth + 1


@pytest.mark.parametrize("tree", TREES[2:5], ids=NAMES[2:5])
def test_to_the_end_of_the_context(wide: Engine, tree: GenerateKeywords) -> None:
    limit = wide.info.max_context
    plain = wide.generate([65, 66], max_new_tokens=10 * limit, num_draft_tokens=0, ignore_eos=True)
    result = wide.generate([65, 66], max_new_tokens=10 * limit, ignore_eos=True, **tree)
    assert (result.token_ids, result.finish_reason) == (plain.token_ids, "context")


def test_the_output_is_as_long_as_asked(wide: Engine) -> None:
    longest = wide.generate("length", max_new_tokens=12, num_draft_tokens=0, ignore_eos=True).token_ids
    for length, tree in itertools.product(range(1, 13), TREES):
        result = wide.generate("length", max_new_tokens=length, ignore_eos=True, **tree)
        assert result.token_ids == longest[:length]


@pytest.mark.parametrize("cache_dtype", ["f16", "f32", "int8"])
@pytest.mark.parametrize("tree", [TREES[0], TREES[3]], ids=[NAMES[0], NAMES[3]])
def test_after_every_round_the_caches_are_a_prefills(
    cache_bundles: dict[str, Path], cache_dtype: str, tree: GenerateKeywords
) -> None:
    """What is decoded after trees, and by another request in the caches they left, has the bits of a prefill."""
    options: GenerateKeywords = {"max_new_tokens": 40, "ignore_eos": True, "reuse_prefix": False}
    with Engine(
        cache_bundles[cache_dtype], threads=2, max_draft_tokens=MOST_TOKENS, num_sequences=2, draft_window=0
    ) as engine:
        for prompt in prompts()[::6]:
            plain = list(engine.stream(prompt, num_draft_tokens=0, **options))
            events = list(engine.stream(prompt, max_new_tokens=40, ignore_eos=True, **tree))
            # A log probability is made of all logits of a row: equal bits in one are equal bits in the other.
            assert [(e.token_id, e.logprob) for e in events] == [(e.token_id, e.logprob) for e in plain]
            ids = prompt + [event.token_id for event in events]
            logits = engine.logits(ids)[len(prompt) - 1 : -1]
            np.testing.assert_array_equal(logits.argmax(axis=1), ids[len(prompt) :])
            # The next request starts in both caches as the trees left them; the draft's decides what is drafted.
            reused = engine.stream(ids, max_new_tokens=40, ignore_eos=True, **tree)
            fresh = engine.stream(ids, **options, **tree)
            assert [(e.token_id, e.logprob, e.origin) for e in reused] == [
                (e.token_id, e.logprob, e.origin) for e in fresh
            ]
            assert reused.stats.num_drafted == fresh.stats.num_drafted
            assert (reused.stats.num_prefilled_target, fresh.stats.num_prefilled_target) == (1, len(ids))
            assert reused.stats.num_prefilled_draft < 10 < fresh.stats.num_prefilled_draft


@pytest.mark.parametrize("cache_dtype", ["f16", "f32", "int8"])
def test_requests_that_share_passes_have_the_bits_of_each_alone(
    cache_bundles: dict[str, Path], cache_dtype: str
) -> None:
    trees: list[GenerateKeywords] = [{"source": "plain"}, {"tree": "dynamic", "tree_nodes": 6}]
    with Engine(cache_bundles[cache_dtype], threads=2, max_draft_tokens=MOST_TOKENS, num_sequences=4) as engine:
        for tree in trees:
            check_the_same_together(engine, prompts()[::4], max_new_tokens=40, **tree)


def test_sampled_dynamic_trees_repeat_plain_decoding_seed_by_seed(wide: Engine) -> None:
    """Their tokens are certain ones, so that the target's own draws decide."""
    accepted = 0
    for seed in range(40):
        options: GenerateKeywords = {"max_new_tokens": 30, "temperature": 0.9, "top_p": 0.95, "seed": seed}
        plain = wide.generate("seed", num_draft_tokens=0, **options)
        result = wide.generate("seed", tree="dynamic", tree_nodes=20, **options)
        assert result.token_ids == plain.token_ids
        assert wide.generate("seed", **options).token_ids == plain.token_ids  # auto draws nothing either
        accepted += result.stats.num_accepted
    assert accepted > 0


def test_a_seed_repeats_itself(wide: Engine) -> None:
    def generate(seed: int) -> tuple[int, ...]:
        return wide.generate("again", max_new_tokens=30, tree="dynamic", temperature=1.0, seed=seed).token_ids

    assert generate(5) == generate(5) != generate(6)


def test_typical_acceptance_is_labelled_lossy(wide: Engine) -> None:
    options: GenerateKeywords = {"max_new_tokens": 60, "temperature": 1.0, "seed": 1, "ignore_eos": True}
    exact = wide.generate("typical", tree="dynamic", tree_nodes=33, **options)
    lossy = wide.generate("typical", tree="dynamic", tree_nodes=33, typical_acceptance=(0.05, 0.3), **options)
    assert not exact.stats.lossy
    assert lossy.stats.lossy
    assert lossy.stats.acceptance_length > exact.stats.acceptance_length
    strict = wide.generate("typical", tree="dynamic", tree_nodes=33, typical_acceptance=(0.999, 1.0), **options)
    assert strict.stats.acceptance_length < lossy.stats.acceptance_length


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tree": "3-2"}, "tree is '3-2', must be \"dynamic\""),
        ({"tree": ""}, "tree is '', must be \"dynamic\""),
        ({"tree": "9" * 5000}, 'must be "dynamic"'),
        ({"tree": 3}, 'tree is 3, must be "dynamic"'),
        ({"tree_nodes": 4}, "tree_nodes is 4, but only tree="),
        ({"tree_depth": 4}, "tree_depth is 4, but only tree="),
        ({"tree": "dynamic", "tree_nodes": 0}, r"tree_nodes is 0, must be an integer in 1\.\.63"),
        ({"tree": "dynamic", "tree_nodes": 34}, r"tree_nodes is 34, must be an integer in 1\.\.33"),
        ({"tree": "dynamic", "tree_nodes": 4, "tree_depth": 5}, r"tree_depth is 5, must be an integer in 1\.\.4"),
        ({"tree": "dynamic", "num_draft_tokens": 4}, "tree is 'dynamic' and num_draft_tokens 4: give one"),
        ({"typical_acceptance": (0.1, 0.3)}, "typical_acceptance needs a temperature"),
        ({"typical_acceptance": (0.0, 0.3), "temperature": 1.0}, "epsilon is 0.0"),
        ({"typical_acceptance": (0.1, 1.5), "temperature": 1.0}, "delta is 1.5"),
    ],
)
def test_bad_options_are_refused(narrow: Engine, options: GenerateKeywords, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        narrow.generate("x", max_new_tokens=4, **options)


@pytest.fixture(scope="module")
def narrow(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=33) as engine:
        yield engine


def test_a_tree_needs_a_draft(plain_bundle: Path) -> None:
    with Engine(plain_bundle, threads=1) as engine, pytest.raises(InvalidArgumentError, match="has no draft"):
        engine.generate("x", tree="dynamic")


def test_a_trees_size() -> None:
    assert tree_size("dynamic", None, None, max_draft_tokens=4) == (4, 4)
    assert tree_size("dynamic", 15, None, max_draft_tokens=33) == (15, 6)
    assert tree_size(None, None, None, max_draft_tokens=33) == (0, 0)


@pytest.mark.real
def test_real_pair(real_bundle: Path) -> None:
    """Twenty prompts and every kind of tree."""
    with Engine(real_bundle, threads=1, max_draft_tokens=MOST_TOKENS) as engine:
        for index in range(20):
            text = f"Write {index % 7 + 1} sentences about the number {index}."
            ids = engine.encode_chat([{"role": "user", "content": text}]) if index % 2 else engine.encode(text)
            plain = engine.generate(ids, max_new_tokens=16, num_draft_tokens=0)
            for tree in TREES:
                assert engine.generate(ids, max_new_tokens=16, **tree).token_ids == plain.token_ids, (text, tree)
