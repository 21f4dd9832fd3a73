"""Heads with a cache of their own (EAGLE, EAGLE-3, multi-token prediction layers) draft what torch says they draft."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from head_bundles import EXACT, KINDS, LOW_BIT, agreeing_bundle, export_head, random_head
from reference.head_chains import Chains
from shared_passes import check_the_same_together
from tiny_bundles import byte_tokenizer, toy_tokenizer
from tiny_mtp import LAYOUTS

from pilotfish import Engine
from pilotfish.exporter import export

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUM_WORDS = 6  # so few that a random head is right now and then
CHAIN = 4
NEW_TOKENS = 40
LENGTHS = (1, 2, 33, 64, 65, 140)  # a head's passes have 64 rows


@pytest.mark.parametrize("kind", KINDS)
def test_chains_are_those_of_torch(tmp_path: Path, kind: str) -> None:
    """Features, positions, taps and the cache are all in the drafts: the tokens that each round accepts tell."""
    torch.set_num_threads(1)
    tokenizer = toy_tokenizer(NUM_WORDS)
    target, head, tensors, config = random_head(tmp_path, kind, tokenizer)
    reference = Chains(target, kind, tensors, config, LAYOUTS.get(kind))
    chooser = random.Random(4)
    num_drafted = num_accepted = 0
    with Engine(export_head(tmp_path / "bundle", target, head), threads=1) as engine:
        for length in LENGTHS:
            prompt = [chooser.randrange(NUM_WORDS) for _ in range(length)]
            result = engine.generate(
                prompt,
                max_new_tokens=NEW_TOKENS,
                source="head",
                num_draft_tokens=CHAIN,
                ignore_eos=True,
                explain=True,
                reuse_prefix=False,
            )
            expected = rounds_of(reference, prompt, list(result.token_ids))
            assert [each.num_tokens for each in result.rounds] == expected
            num_drafted += result.stats.num_drafted
            num_accepted += result.stats.num_accepted
        engine.check()
    assert 0 < num_accepted < num_drafted


def rounds_of(reference: Chains, prompt: list[int], output: list[int]) -> list[int]:
    """Tokens of each round that drafts a chain, given the whole output."""
    tokens = [*prompt, *output]
    features = reference.features(tokens)
    length, rounds = len(prompt) + 1, []
    while length < len(tokens):
        drafted = reference.draft(tokens[:length], features, min(CHAIN, len(tokens) - length - 1))
        num_accepted = 0
        while num_accepted < len(drafted) and drafted[num_accepted] == tokens[length + num_accepted]:
            num_accepted += 1
        rounds.append(num_accepted + 1)
        length += num_accepted + 1
    return rounds


@pytest.fixture(scope="module", params=["eagle", "eagle3", "deepseek"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A head that often agrees with its target, in the formats of real bundles."""
    bundle = agreeing_bundle(tmp_path_factory.mktemp(request.param), request.param, byte_tokenizer())
    with Engine(bundle, threads=2, num_sequences=3, max_draft_tokens=24) as loaded:
        yield loaded
        loaded.check()


DRAFTING: tuple[dict[str, Any], ...] = (
    {"num_draft_tokens": 1},
    {"num_draft_tokens": 5},
    {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
    {"tree": "dynamic", "tree_nodes": 16},
    {"num_draft_tokens": None},
)


def prompts() -> list[list[int]]:
    chooser = random.Random(9)
    return [[chooser.randrange(256) for _ in range(length)] for length in (1, 5, 31, 32, 33, 64, 100, 130)]


@pytest.mark.parametrize("drafting", DRAFTING, ids=str)
def test_greedy_tokens_are_plain_decodings(engine: Engine, drafting: dict[str, Any]) -> None:
    num_accepted = num_drafted = 0
    for prompt in prompts():
        plain = engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="plain")
        for reuse in (True, False):
            result = engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="head", reuse_prefix=reuse, **drafting)
            assert (result.token_ids, result.finish_reason) == (plain.token_ids, plain.finish_reason)
            num_accepted += result.stats.num_accepted
            num_drafted += result.stats.num_drafted
    if drafting != {"num_draft_tokens": None}:  # the controller may find that nothing pays
        assert 0.02 * num_drafted < num_accepted < num_drafted


@pytest.mark.parametrize("drafting", DRAFTING[:4], ids=str)
def test_in_shared_passes_drafts_are_the_same(engine: Engine, drafting: dict[str, Any]) -> None:
    """Each request's head reads its own rows of the pass: it accepts as much as alone."""
    options = {"max_new_tokens": NEW_TOKENS, "source": "head", "reuse_prefix": False} | drafting
    check_the_same_together(engine, prompts(), **options)


def test_turns_reuse_the_heads_cache(engine: Engine) -> None:
    """A conversation drafts the same with and without reuse; a turn runs its own tokens and those before them that the
    head has not read: of the last rounds."""
    chooser = random.Random(5)
    history: list[int] = []
    for _ in range(4):
        question = [chooser.randrange(256) for _ in range(9)]
        history += question
        options: dict[str, Any] = {"max_new_tokens": 13, "source": "head", "num_draft_tokens": 3, "ignore_eos": True}
        reused = engine.generate(history, **options)
        alone = engine.generate(history, **options, reuse_prefix=False)
        assert reused.token_ids == alone.token_ids
        assert (reused.stats.num_rounds, reused.stats.num_accepted) == (
            alone.stats.num_rounds,
            alone.stats.num_accepted,
        )
        if len(history) > len(question):
            assert reused.stats.num_prefilled_target <= len(question) + 10 < len(history)
        history += reused.token_ids


def test_forks_do_not_spoil_each_others_cache(engine: Engine) -> None:
    """Continuations that leave a prompt at every place of a block, then the prompt's own again."""
    chooser = random.Random(6)
    trunk = [chooser.randrange(256) for _ in range(70)]
    options: dict[str, Any] = {"max_new_tokens": 12, "source": "head", "num_draft_tokens": 4, "ignore_eos": True}
    first = engine.generate(trunk, **options)
    for length in (*range(28, 36), *range(60, 68)):
        fork = [*trunk[:length], chooser.randrange(256), chooser.randrange(256)]
        reused, alone = engine.generate(fork, **options), engine.generate(fork, **options, reuse_prefix=False)
        assert (reused.token_ids, reused.stats.num_rounds) == (alone.token_ids, alone.stats.num_rounds)
        again = engine.generate([*trunk, *first.token_ids[:6]], **options)
        fresh = engine.generate([*trunk, *first.token_ids[:6]], **options, reuse_prefix=False)
        assert (again.token_ids, again.stats.num_rounds) == (fresh.token_ids, fresh.stats.num_rounds)
        engine.check()


def test_a_head_follows_requests_that_take_turns(engine: Engine) -> None:
    """Streams of one request are not those of another, whichever ran the target last."""
    options: dict[str, Any] = {"max_new_tokens": 24, "source": "head", "num_draft_tokens": 4, "ignore_eos": True}
    alone = [engine.generate(prompt, **options) for prompt in prompts()[2:5]]
    streams = [engine.stream(prompt, **options) for prompt in prompts()[2:5]]
    outputs: list[list[int]] = [[] for _ in streams]
    waiting = set(range(len(streams)))
    while waiting:
        for index in sorted(waiting):
            event = next(streams[index], None)
            if event is None:
                waiting.discard(index)
            else:
                outputs[index].append(event.token_id)
    assert outputs == [list(result.token_ids) for result in alone]


def test_a_cancelled_request_leaves_a_sound_cache(engine: Engine) -> None:
    options: dict[str, Any] = {"max_new_tokens": 30, "source": "head", "num_draft_tokens": 4, "ignore_eos": True}
    for num_taken in (1, 2, 9):
        prompt = [num_taken, *prompts()[5]]
        with engine.stream(prompt, **options) as stream:
            taken = [next(stream).token_id for _ in range(num_taken)]
            stream.cancel()
        reused = engine.generate([*prompt, *taken], **options)
        alone = engine.generate([*prompt, *taken], **options, reuse_prefix=False)
        assert (reused.token_ids, reused.stats.num_rounds) == (alone.token_ids, alone.stats.num_rounds)
        assert reused.stats.num_prefilled_target < alone.stats.num_prefilled_target
        engine.check()


def test_an_echoed_prompt_and_every_way_to_end(engine: Engine) -> None:
    prompt = prompts()[4]
    options: dict[str, Any] = {"max_new_tokens": 30, "source": "head", "num_draft_tokens": 4, "ignore_eos": True}
    plain = engine.generate(prompt, **(options | {"source": "plain", "num_draft_tokens": None}))
    for changes in (
        {"echo": True},
        {"stop_ids": [plain.token_ids[11]]},
        {"max_new_tokens": 1},
        {"max_new_tokens": 2},
        {"stop": [plain.text[4:6]]} if plain.text[4:6].isascii() and plain.text[4:6] else {},
    ):
        drafted = engine.generate(prompt, **(options | changes))
        expected = engine.generate(prompt, **(options | changes | {"source": "plain", "num_draft_tokens": None}))
        assert (drafted.token_ids, drafted.finish_reason) == (expected.token_ids, expected.finish_reason)
    long = [*prompt, *prompts()[-1], *prompts()[-2]][: engine.info.max_context - 10]
    drafted = engine.generate(long, **(options | {"max_new_tokens": 100}))
    assert drafted.finish_reason == "context"
    expected = engine.generate(long, max_new_tokens=100, source="plain", ignore_eos=True)
    assert drafted.token_ids == expected.token_ids


def test_a_seed_repeats_its_tokens(engine: Engine) -> None:
    for drafting in DRAFTING[:4]:
        for prompt in prompts()[2:6]:
            options: dict[str, Any] = {"max_new_tokens": 24, "temperature": 1.1, "seed": 8, "source": "head"}
            first, second = (engine.generate(prompt, **options, **drafting) for _ in range(2))
            alone = engine.generate(prompt, **options, **drafting, reuse_prefix=False)
            assert first.token_ids == second.token_ids == alone.token_ids


def test_a_draft_and_a_head_keep_caches_apart(tmp_path: Path) -> None:
    """One bundle has both, requests of one conversation use now this one, now that one, and auto both."""
    agreeing_bundle(tmp_path, "eagle", byte_tokenizer())
    target, head = tmp_path / "target", tmp_path / "agreeing"
    export(str(target), tmp_path / "both", draft=str(target), head=str(head), options=LOW_BIT)
    history = prompts()[3]
    sources = ("draft", "head", "plain", "head", "lookup+head", "auto", "draft")
    with Engine(tmp_path / "both", threads=1, num_sequences=2) as engine:
        for source in sources:
            number = None if source in ("auto", "plain") else 3
            options: dict[str, Any] = {"max_new_tokens": 16, "ignore_eos": True}
            result = engine.generate(history, source=source, num_draft_tokens=number, **options)
            alone = engine.generate(history, source=source, num_draft_tokens=number, reuse_prefix=False, **options)
            plain = engine.generate(history, source="plain", reuse_prefix=False, **options)
            assert result.token_ids == alone.token_ids == plain.token_ids
            assert result.stats.num_head_drafted > 0 or source != "head"
            assert result.stats.num_model_drafted > 0 or source != "draft"
            if source in ("draft", "head"):
                assert result.stats.num_accepted == alone.stats.num_accepted
            history = [*history, *result.token_ids, 7]
            engine.check()


def test_the_exact_formats_too(tmp_path: Path) -> None:
    bundle = agreeing_bundle(tmp_path, "eagle3", byte_tokenizer(), EXACT)
    with Engine(bundle, threads=1) as engine:
        for prompt in prompts()[:4]:
            plain = engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="plain")
            assert engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="head").token_ids == plain.token_ids
