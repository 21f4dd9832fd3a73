"""The text of a seed is plain decoding's, token for token, whatever drafts it and in whatever company.

The variable PILOTFISH_SEEDS asks for so many seeds a source. test_many_seeds, which is marked slow, is the long run of
1000 seeds that share the ways to sample. It may be run in pieces: PILOTFISH_FIRST_SEED is where they begin.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest
import tiny_heads
from every_option import EVERY_OPTION
from fitted_heads import LOW_BIT, TorchTarget, export_with, fitted_head
from head_bundles import agreeing_bundle
from tiny_bundles import byte_tokenizer

from pilotfish import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pilotfish.runtime.results import Result

NUM_SEEDS = int(os.environ.get("PILOTFISH_SEEDS", "4"))
MANY_SEEDS = int(os.environ.get("PILOTFISH_SEEDS", "1000"))
FIRST_SEED = int(os.environ.get("PILOTFISH_FIRST_SEED", "0"))
TOGETHER = 4
NEW_TOKENS = 24
LEAST_ACCEPTED = 10  # a way to sample, so that there is something to compare
MAX_DRAFT_TOKENS = 15

OPTIONS: dict[str, dict[str, Any]] = {
    "warm": {"temperature": 1.0},
    "cool, top-k": {"temperature": 0.6, "top_k": 20},
    "top-p, min-p": {"temperature": 1.3, "top_p": 0.9, "min_p": 0.02},
    "typical-p": {"temperature": 0.9, "typical_p": 0.9},
    "penalties": {"temperature": 0.8, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "penalty_window": 16},
    "every option": {"temperature": 0.9, **EVERY_OPTION},
    "hot": {"temperature": 20.0},
}
SHAPES: tuple[dict[str, Any], ...] = (
    {"num_draft_tokens": 1},
    {"num_draft_tokens": 5},
    {"num_draft_tokens": None},
    {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
    {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 4},
)
OF_PAIRS = (
    *({"source": "draft", **shape} for shape in SHAPES),
    {"source": "lookup", "num_draft_tokens": 4},
    {"source": "lookup+draft", "num_draft_tokens": 4},
    {"source": "lookup+draft", "tree": "dynamic", "tree_nodes": 12},
    {"source": "lookup+draft"},
    {"source": "auto"},
)
OF_HEADS = (
    *({"source": "head", **shape} for shape in SHAPES),
    {"source": "lookup+head", "num_draft_tokens": 4},
    {"source": "lookup+head", "tree": "dynamic", "tree_nodes": 12},
    {"source": "auto"},
)


@pytest.fixture(scope="module", params=["draft", "medusa", "mlp_speculator", "eagle", "eagle3", "qwen3_next"])
def engine(
    request: pytest.FixtureRequest, checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("equality")
    if request.param == "draft":
        bundle = request.getfixturevalue("tiny_bundle")
    elif request.param in ("medusa", "mlp_speculator"):
        fitted = fitted_head(request.param, TorchTarget(checkpoints["target"]))
        head = tiny_heads.save_head(folder / "head", *fitted)
        bundle = export_with(folder / "bundle", checkpoints["target"], head, LOW_BIT)
    else:
        bundle = agreeing_bundle(folder, request.param, byte_tokenizer())
    with Engine(bundle, threads=1, num_sequences=TOGETHER, max_draft_tokens=MAX_DRAFT_TOKENS) as loaded:
        yield loaded


def prompt_of(seed: int) -> list[int]:
    chooser = random.Random(seed)
    ids = [chooser.randrange(256) for _ in range(1 + 9 * (seed % 5))]
    return ids * (1 + seed % 2)  # half of them give lookup something to find


def draftings_of(engine: Engine) -> tuple[dict[str, Any], ...]:
    return OF_HEADS if engine.info.has_head else OF_PAIRS


def same(one: Result, other: Result) -> bool:
    return (one.token_ids, one.finish_reason) == (other.token_ids, other.finish_reason)


def compare_alone(engine: Engine, seed: int, sampling: dict[str, Any]) -> tuple[int, int]:
    """Every way to draft beside plain decoding; how many tokens were drafted and accepted in all."""
    drafted = accepted = 0
    options = {"max_new_tokens": NEW_TOKENS, "seed": seed, **sampling}
    plain = engine.generate(prompt_of(seed), source="plain", **options)
    for drafting in draftings_of(engine):
        result = engine.generate(prompt_of(seed), **options, **drafting)
        assert same(result, plain), (seed, drafting, sampling)
        drafted += result.stats.num_drafted
        accepted += result.stats.num_accepted
    return drafted, accepted


def compare_together(engine: Engine, seed: int, sampling: dict[str, Any], draftings: Sequence[dict[str, Any]]) -> None:
    """Four at a time, of one seed; what an earlier generation left in the caches is reused."""
    options = {"max_new_tokens": NEW_TOKENS, "seed": seed, **sampling}
    prompts = [prompt_of(seed + offset) for offset in range(TOGETHER)]
    plain = [engine.generate(prompt, source="plain", reuse_prefix=False, **options) for prompt in prompts]
    for drafting in draftings:
        together = engine.generate_batch(prompts, **options, **drafting)
        assert all(map(same, together, plain)), (seed, drafting, sampling)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_source_repeats_plain_decoding(engine: Engine, name: str) -> None:
    counts = [compare_alone(engine, seed, OPTIONS[name]) for seed in range(FIRST_SEED, FIRST_SEED + NUM_SEEDS)]
    drafted, accepted = (sum(each) for each in zip(*counts, strict=True))
    assert drafted > accepted >= LEAST_ACCEPTED
    engine.check()


@pytest.mark.parametrize("name", OPTIONS)
def test_company_changes_nothing(engine: Engine, name: str) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + NUM_SEEDS):
        compare_together(engine, seed, OPTIONS[name], draftings_of(engine)[seed % 2 :: 2])
    engine.check()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_seeds(engine: Engine) -> None:
    """Each seed with one way to sample and every way to draft, alone; with one way to draft in company."""
    sampling, draftings = list(OPTIONS.values()), draftings_of(engine)
    accepted = 0
    for seed in range(FIRST_SEED, FIRST_SEED + MANY_SEEDS):
        chosen = sampling[seed % len(sampling)]
        accepted += compare_alone(engine, seed, chosen)[1]
        compare_together(engine, seed, chosen, draftings[seed % len(draftings) :][:1])
    assert accepted >= LEAST_ACCEPTED
    engine.check()


def test_later_turns_repeat_plain_decoding(engine: Engine) -> None:
    """A second turn on the caches of a first one that was drafted, and of one that was cut short."""
    for seed in range(FIRST_SEED, FIRST_SEED + NUM_SEEDS):
        options = {"max_new_tokens": NEW_TOKENS, "seed": seed, "temperature": 1.0}
        prompt = prompt_of(seed)
        first = engine.generate(prompt, reuse_prefix=False, source="plain", **options)
        longer = [*prompt, *first.token_ids, 7, 8, 9]
        second = engine.generate(longer, reuse_prefix=False, source="plain", **options)
        for drafting in draftings_of(engine):
            assert same(engine.generate(prompt, **options, **drafting), first), (seed, drafting)
            with engine.stream(prompt, **options, **drafting) as stream:
                next(iter(stream))
            assert same(engine.generate(longer, **options, **drafting), second), (seed, drafting)
