"""Acceptance of chains against loops over every window."""

from __future__ import annotations

import torch

from pilotfish.exporter.training.acceptance import CHAIN_DEPTH, AcceptanceCounts
from pilotfish.exporter.training.losses import Distance


def counted(scored: torch.Tensor, values: torch.Tensor) -> AcceptanceCounts:
    counts = AcceptanceCounts(torch.device("cpu"))
    picked = values[scored]
    deep = picked.expand(CHAIN_DEPTH, -1)  # a draft's guess of a token is the same at every depth
    counts.add(scored, Distance(torch.tensor(7.0), deep, (deep > 0.5).float()))
    return counts


def test_chains_equal_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    scored = torch.rand(5, 40, generator=generator) < 0.9
    values = torch.rand(5, 40, generator=generator)
    scores = counted(scored, values).scores()
    for depth in range(1, CHAIN_DEPTH + 1):
        products, hits = [], []
        for row in range(5):
            for start in range(40 - depth + 1):
                if scored[row, start : start + depth].all():
                    window = values[row, start : start + depth].double()
                    products.append(window.prod())
                    hits.append((window > 0.5).all().double())
        length = scores.sampled_lengths[depth - 1] - (scores.sampled_lengths[depth - 2] if depth > 1 else 1)
        torch.testing.assert_close(length, float(torch.stack(products).mean()))
        length = scores.greedy_lengths[depth - 1] - (scores.greedy_lengths[depth - 2] if depth > 1 else 1)
        torch.testing.assert_close(length, float(torch.stack(hits).mean()))


def test_constant_acceptance_gives_the_closed_form() -> None:
    scores = counted(torch.ones(1, 50, dtype=torch.bool), torch.full((1, 50), 0.8)).scores()
    assert max(abs(value - 0.8) for value in scores.sampled_by_depth) < 1e-6
    for chain, length in enumerate(scores.sampled_lengths, start=1):
        assert abs(length - (1 - 0.8 ** (chain + 1)) / (1 - 0.8)) < 1e-6
    assert scores.greedy_lengths == tuple(float(chain + 1) for chain in range(1, 9))


def test_windows_do_not_cross_unscored_positions() -> None:
    scored = torch.tensor([[True, False, True, False]])
    scores = counted(scored, torch.ones(1, 4)).scores()
    assert scores.num_tokens == 2
    assert scores.greedy_lengths[0] == 2
    assert scores.greedy_lengths[7] == 2  # no text of two scored tokens in a row


def test_loss_is_a_mean_over_tokens() -> None:
    assert counted(torch.ones(1, 14, dtype=torch.bool), torch.ones(1, 14)).mean_loss == 0.5
