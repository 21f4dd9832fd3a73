"""Whatever drafts: the same greedy tokens, seeds that repeat theirs, stores that are checked, bad options refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pilotfish import Engine
from pilotfish.bindings import BundleCorruptError, InvalidArgumentError, PairMismatchError
from pilotfish.runtime.options import SOURCES as ALL_SOURCES
from pilotfish.runtime.options import GenerateKeywords

NEW_TOKENS = 40
# Heads need a bundle that has one: test_heads.py.
SOURCES = tuple(source for source in ALL_SOURCES if "head" not in source)


def prompts() -> list[list[int]]:
    """Random ids, of which a passage is said twice."""
    chooser = random.Random(9)
    result = []
    for length in range(4, 44, 2):
        passage = [chooser.randrange(256) for _ in range(length)]
        result.append([*passage, chooser.randrange(256), *passage[: length - 2]])
    return result


@pytest.mark.parametrize("num_draft_tokens", [None, 1, 5, 8])
@pytest.mark.parametrize("source", [source for source in SOURCES if source != "plain"])
def test_greedy_tokens_are_plain_decodings(engine: Engine, source: str, num_draft_tokens: int | None) -> None:
    totals = {"lookup": 0, "model": 0}
    for prompt in prompts():
        plain = engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="plain")
        result = engine.generate(
            prompt, max_new_tokens=NEW_TOKENS, source=source, num_draft_tokens=num_draft_tokens, explain=True
        )
        assert result.token_ids == plain.token_ids
        stats = result.stats
        assert stats.num_drafted == stats.num_lookup_drafted + stats.num_model_drafted
        assert stats.num_accepted == stats.num_lookup_accepted + stats.num_model_accepted
        assert 1 + sum(each.num_tokens for each in result.rounds) == stats.num_new_tokens
        totals["lookup"] += stats.num_lookup_drafted
        totals["model"] += stats.num_model_drafted
    if "lookup" in source:
        assert totals["lookup"] > 0
    if "draft" in source:
        assert totals["model"] > 0
    if source in ("draft", "lookup"):
        assert min(totals.values()) == 0
    engine.check()


def test_a_bundle_without_a_draft_looks_up(plain_bundle: Path) -> None:
    with Engine(plain_bundle, threads=2) as engine:
        for prompt in prompts()[::3]:
            plain = engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="plain")
            for options in ({}, {"source": "lookup"}, {"source": "lookup", "num_draft_tokens": 4}):
                assert engine.generate(prompt, max_new_tokens=NEW_TOKENS, **options).token_ids == plain.token_ids
        assert plain.stats.num_drafted == 0
        for source in ("draft", "lookup+draft"):
            with pytest.raises(InvalidArgumentError, match="the bundle has no draft"):
                engine.generate("x", source=source)


def test_a_seed_repeats_its_tokens_under_every_source(engine: Engine) -> None:
    """Also when the first generation left its caches for the second."""
    for source in SOURCES:
        for prompt in prompts()[::5]:
            first, second = (
                engine.generate(prompt, max_new_tokens=NEW_TOKENS, source=source, temperature=1.2, seed=5).token_ids
                for _ in range(2)
            )
            assert first == second


def test_an_engine_without_room_for_drafts_decodes_plainly(tiny_bundle: Path) -> None:
    with Engine(tiny_bundle, threads=2, max_draft_tokens=0) as engine:
        for source in SOURCES:
            result = engine.generate(prompts()[0], max_new_tokens=8, source=source)
            assert result.stats.num_drafted == 0
            assert result.stats.num_rounds == result.stats.num_new_tokens - 1


def test_the_draft_sees_a_window(tiny_bundle: Path) -> None:
    """It begins anew where the sequence has outgrown its window, and even its positions; the tokens stay the same."""
    prompt = prompts()[-1]
    plain = drafted = None
    for window in (64, 0):
        with Engine(tiny_bundle, threads=2, draft_window=window) as engine:
            plain = engine.generate(prompt, max_new_tokens=150, source="plain", ignore_eos=True)
            drafted = engine.generate(prompt, max_new_tokens=150, source="draft", num_draft_tokens=4, ignore_eos=True)
            assert drafted.token_ids == plain.token_ids
            assert drafted.stats.num_model_rounds > 20
            again = engine.generate(prompt, max_new_tokens=150, source="draft", num_draft_tokens=4, ignore_eos=True)
            assert again.token_ids == plain.token_ids
            engine.check()


def test_a_draft_without_a_window_drafts_up_to_its_last_position(tiny_bundle: Path) -> None:
    """The draft has 192 positions, the target 512: rounds near that limit have room for a part of a tree only."""
    with Engine(tiny_bundle, threads=2, draft_window=0, max_draft_tokens=15) as engine:
        options: dict[str, Any] = {"max_new_tokens": 60, "ignore_eos": True, "reuse_prefix": False}
        for num_tokens in range(170, 192):
            prompt = [at % 250 for at in range(num_tokens)]
            plain = engine.generate(prompt, source="plain", **options)
            for drafting in ({"tree": "dynamic", "tree_nodes": 10}, {"num_draft_tokens": 5}, {"tree": "dynamic"}):
                result = engine.generate(prompt, source="draft", **drafting, **options)
                assert result.token_ids == plain.token_ids, (num_tokens, drafting)


def test_a_store_remembers_outputs(tiny_bundle: Path, tmp_path: Path) -> None:
    store = tmp_path / "deeper" / "app.store"
    prompt = prompts()[3]
    options = GenerateKeywords(max_new_tokens=NEW_TOKENS, source="lookup", num_draft_tokens=4, ignore_eos=True)
    with Engine(tiny_bundle, threads=2, lookup_store=store) as engine:
        first = engine.generate(prompt, **options)
    assert store.is_file()
    with Engine(tiny_bundle, threads=2, lookup_store=store, lookup_store_size="64 KiB") as engine:
        second = engine.generate(prompt, **options)
        assert second.token_ids == first.token_ids
        assert second.stats.num_lookup_accepted > first.stats.num_lookup_accepted
        assert second.stats.num_rounds < first.stats.num_rounds
        engine.save_lookup()


def test_a_store_of_another_tokenizer_is_refused(tiny_bundle: Path, toy_bundle: Path, tmp_path: Path) -> None:
    store = tmp_path / "app.store"
    with Engine(tiny_bundle, threads=2, lookup_store=store) as engine:
        engine.generate("abc", max_new_tokens=8)
    with pytest.raises(PairMismatchError, match="is of the tokenizer"):
        Engine(toy_bundle, threads=2, lookup_store=store)
    store.write_bytes(store.read_bytes()[:-2])
    with pytest.raises(BundleCorruptError, match="cut short"):
        Engine(tiny_bundle, threads=2, lookup_store=store)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"calibration": "sometimes"}, "calibration is 'sometimes', must be one of off, kept, refresh"),
        ({"draft_window": 63}, "draft_window is 63, must be 0 or in 64"),
        ({"draft_window": -1}, "draft_window is -1"),
        ({"lookup_store": "x", "lookup_store_size": 4095}, "lookup_store_size is 4095, must be in 4096"),
        ({"lookup_store": "x", "lookup_store_size": "2GiB"}, "lookup_store_size is 2147483648"),
        ({"lookup_store_size": "1MiB"}, "no lookup_store is named"),
    ],
)
def test_options_outside_their_range(tiny_bundle: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Engine(tiny_bundle, **options)


def test_saving_without_a_store_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidArgumentError, match="without a lookup_store"):
        engine.save_lookup()


@pytest.mark.real
def test_lookup_on_texts_that_copy(real_engine: Engine) -> None:
    """A round of five rows takes 1.3 plain ones: three tokens a round are 2.3 times plain decoding's speed."""
    copies = Path(__file__).parents[2] / "samples" / "copy_heavy.jsonl"
    num_tokens = num_rounds = 0
    for line in copies.read_text(encoding="utf-8").splitlines():
        ids = real_engine.encode_chat([{"role": "user", "content": json.loads(line)["prompt"]}])
        plain = real_engine.generate(ids, max_new_tokens=96, source="plain")
        for source in ("lookup", "auto"):
            result = real_engine.generate(ids, max_new_tokens=96, source=source)
            assert result.token_ids == plain.token_ids
        num_tokens += result.stats.num_new_tokens - 1
        num_rounds += result.stats.num_rounds
    assert num_tokens > 3 * num_rounds
