"""Sampled output follows the target's distribution, whatever the draft proposes.

Three tokens are generated from one prompt, with one seed a run, and the frequencies of all triples are compared with
their exact probabilities by Pearson's chi-square test. Seeds are fixed, so a result is the same in every run.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tiny_heads
import torch
from fitted_heads import EXACT, KINDS, TorchTarget, export_with, fitted_head
from head_bundles import agreeing_bundle
from tiny_bundles import toy_tokenizer

from pilotfish import Engine
from pilotfish.bindings import Model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from pilotfish.runtime.options import GenerateKeywords

PROMPT = [1, 5, 3]
NUM_RUNS = 6000
LENGTH = 3
LEAST_EXPECTED = 5.0  # cells below are pooled
SIGNIFICANCE = 1e-4

OPTIONS: dict[str, dict[str, float]] = {
    "plain softmax": {"temperature": 1.0},
    "cool and top-k": {"temperature": 0.7, "top_k": 5},
    "warm and top-p": {"temperature": 1.4, "top_p": 0.8},
    "min-p": {"temperature": 1.0, "min_p": 0.3},
    "typical-p": {"temperature": 1.0, "typical_p": 0.7},
    "all of them": {"temperature": 0.9, "top_k": 8, "top_p": 0.95, "min_p": 0.05},
}

# By shared noise everything gives plain decoding's tokens (test_sampled_equality), so that few ways to draft suffice.
DRAFTING: tuple[GenerateKeywords, ...] = (
    {"num_draft_tokens": 0},
    {"num_draft_tokens": 2},
    {"tree": "dynamic", "tree_nodes": 6, "tree_depth": 2},
)
CASES = [
    *((name, DRAFTING[0]) for name in OPTIONS),
    *(("all of them", drafting) for drafting in DRAFTING[1:]),
]

# By rejection it is what is drawn that decides: each filter alone with one way to draft, none and all with every one.
DRAWING: tuple[GenerateKeywords, ...] = (
    {"num_draft_tokens": 1},
    {"num_draft_tokens": 2},
    {"num_draft_tokens": 5},
    {"source": "lookup+draft", "num_draft_tokens": 2},
)
DRAWN_CASES = [
    (name, drafting)
    for name in OPTIONS
    for drafting in DRAWING
    if name in ("plain softmax", "all of them") or drafting == DRAWING[1]
]
DRAWN_BY_HEADS: tuple[GenerateKeywords, ...] = (
    {"num_draft_tokens": 2},
    {"num_draft_tokens": 1},
    {"source": "lookup+head", "num_draft_tokens": 2},
)
HEAD_CASES = [*(("all of them", drafting) for drafting in DRAWN_BY_HEADS), ("plain softmax", DRAWN_BY_HEADS[0])]


def name_of(value: str | GenerateKeywords) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value.values()))


@pytest.fixture(scope="module", params=[*KINDS, "eagle", "eagle3"])
def toy_with_head(
    request: pytest.FixtureRequest, checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("toy_head")
    if request.param in KINDS:
        head = tiny_heads.save_head(folder / "head", *fitted_head(request.param, TorchTarget(checkpoints["toy"])))
        bundle = export_with(folder / "bundle", checkpoints["toy"], head, EXACT)
    else:
        bundle = agreeing_bundle(folder, request.param, toy_tokenizer(10), EXACT)
    with Engine(bundle, threads=1, acceptance="rejection") as engine:
        yield engine


@pytest.fixture(scope="module")
def toy(toy_bundle: Path) -> Iterator[Engine]:
    with Engine(toy_bundle, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def rejecting(toy_bundle: Path) -> Iterator[Engine]:
    with Engine(toy_bundle, threads=1, acceptance="rejection") as engine:
        yield engine


def processed(logits: NDArray[np.float32], options: Mapping[str, float]) -> NDArray[np.float64]:
    """The distribution that options ask for: temperature, top-k, top-p, min-p and typical-p, each on the one before."""
    scaled = logits.astype(np.float64) / options["temperature"]
    probabilities = np.exp(scaled - scaled.max())
    order = np.argsort(-probabilities, kind="stable")
    keep = order[: int(options.get("top_k", 0)) or len(order)]
    mass = np.cumsum(probabilities[keep]) / probabilities[keep].sum()
    keep = keep[: int(np.searchsorted(mass, options.get("top_p", 1.0))) + 1]
    keep = keep[probabilities[keep] >= options.get("min_p", 0.0) * probabilities[keep[0]]]
    shares = probabilities[keep] / probabilities[keep].sum()
    distances = np.abs(-np.log(shares) + (shares * np.log(shares)).sum())
    nearest = np.argsort(distances, kind="stable")
    mass = np.cumsum(shares[nearest])
    keep = keep[nearest[: int(np.searchsorted(mass, options.get("typical_p", 1.0))) + 1]]
    result = np.zeros_like(probabilities)
    result[keep] = probabilities[keep] / probabilities[keep].sum()
    return result


def exact(engine: Engine, options: Mapping[str, float], model: Model) -> dict[tuple[int, ...], float]:
    """Probability of every continuation of LENGTH tokens."""
    paths: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LENGTH):
        longer = {}
        for path, probability in paths.items():
            following = processed(engine.logits([*PROMPT, *path], model)[-1], options)
            longer |= {(*path, token): probability * share for token, share in enumerate(following) if share > 0}
        paths = longer
    return paths


def sampled(engine: Engine, options: Mapping[str, float], drafting: GenerateKeywords) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(NUM_RUNS):
        result = engine.generate(
            PROMPT,
            max_new_tokens=LENGTH,
            ignore_eos=True,
            seed=seed,
            **drafting,
            **options,  # type: ignore[arg-type] # top_k is whole
        )
        counts[result.token_ids] += 1
    return counts


def p_value(counts: Counter[tuple[int, ...]], probabilities: Mapping[tuple[int, ...], float]) -> float:
    """Of Pearson's chi-square; 0 if something impossible was seen. Rare cells are pooled into one."""
    if counts.keys() - probabilities.keys():
        return 0.0
    statistic, num_cells = 0.0, 0
    pooled_seen = pooled_expected = 0.0
    for path, probability in sorted(probabilities.items(), key=lambda item: -item[1]):
        expected = NUM_RUNS * probability
        if expected >= LEAST_EXPECTED:
            statistic += (counts[path] - expected) ** 2 / expected
            num_cells += 1
        else:
            pooled_seen += counts[path]
            pooled_expected += expected
    if pooled_expected >= LEAST_EXPECTED:
        statistic += (pooled_seen - pooled_expected) ** 2 / pooled_expected
        num_cells += 1
    freedom = torch.tensor((num_cells - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))


@pytest.mark.parametrize(("name", "drafting"), CASES, ids=name_of)
def test_triples_follow_the_target(toy: Engine, name: str, drafting: GenerateKeywords) -> None:
    probabilities = exact(toy, OPTIONS[name], Model.TARGET)
    assert sum(probabilities.values()) == pytest.approx(1.0)
    assert p_value(sampled(toy, OPTIONS[name], drafting), probabilities) > SIGNIFICANCE


@pytest.mark.parametrize(("name", "drafting"), DRAWN_CASES, ids=name_of)
def test_triples_accepted_by_rejection_follow_the_target(
    rejecting: Engine, name: str, drafting: GenerateKeywords
) -> None:
    probabilities = exact(rejecting, OPTIONS[name], Model.TARGET)
    assert p_value(sampled(rejecting, OPTIONS[name], drafting), probabilities) > SIGNIFICANCE


@pytest.mark.parametrize(("name", "drafting"), HEAD_CASES, ids=name_of)
def test_triples_drafted_by_a_head_follow_the_target(
    toy_with_head: Engine, name: str, drafting: GenerateKeywords
) -> None:
    options = OPTIONS[name]
    drafting = {"source": "head", **drafting}
    sample = toy_with_head.generate(PROMPT, max_new_tokens=60, ignore_eos=True, seed=1, **drafting, **options)  # type: ignore[arg-type]
    assert 0 < sample.stats.num_accepted < sample.stats.num_drafted
    assert (
        p_value(sampled(toy_with_head, options, drafting), exact(toy_with_head, options, Model.TARGET)) > SIGNIFICANCE
    )


@pytest.mark.parametrize("acceptance", ["equal", "rejection"])
def test_the_test_would_notice_the_drafts_distribution(toy_bundle: Path, acceptance: str) -> None:
    options = OPTIONS["plain softmax"]
    with Engine(toy_bundle, threads=1, acceptance=acceptance) as engine:
        counts = sampled(engine, options, {"num_draft_tokens": 2})
        assert p_value(counts, exact(engine, options, Model.DRAFT)) < 1e-9
        runs = [
            engine.generate(PROMPT, max_new_tokens=30, num_draft_tokens=2, seed=seed, **options).stats  # type: ignore[arg-type]
            for seed in range(20)
        ]
    rate = sum(stats.num_accepted for stats in runs) / sum(stats.num_drafted for stats in runs)
    assert 0.2 < rate < 0.95


@pytest.mark.parametrize("acceptance", ["equal", "rejection"])
def test_self_draft_accepts_every_sample(self_bundle: Path, acceptance: str) -> None:
    with Engine(self_bundle, threads=1, acceptance=acceptance) as engine:
        for seed, num_draft_tokens in itertools.product(range(5), (1, 4, 8)):
            stats = engine.generate(
                "sample",
                max_new_tokens=40,
                num_draft_tokens=num_draft_tokens,
                temperature=0.8,
                seed=seed,
                ignore_eos=True,
            ).stats
            assert stats.num_accepted == stats.num_drafted > 0


@pytest.mark.parametrize("num_draft_tokens", [0, 4])
def test_a_seed_repeats_itself_and_another_does_not(engine: Engine, num_draft_tokens: int) -> None:
    def generate(seed: int | None) -> tuple[int, ...]:
        return engine.generate(
            "seed", max_new_tokens=30, num_draft_tokens=num_draft_tokens, temperature=1.0, seed=seed, ignore_eos=True
        ).token_ids

    assert generate(3) == generate(3)
    assert len({generate(seed) for seed in (3, 4, 2**64 - 1, None, None)}) == 5


def test_the_drawn_seed_is_reported_and_repeats_the_text(engine: Engine) -> None:
    drawn = engine.generate("x", max_new_tokens=30, temperature=1.0)
    assert engine.generate("x", max_new_tokens=30, temperature=1.0, seed=drawn.stats.seed).token_ids == drawn.token_ids
