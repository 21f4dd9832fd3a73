"""Replayed rounds counted by hand, and scores from costs that make the arithmetic plain."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.runtime.draft_evaluation import CHAINS, Answer, PassCosts, replay, score

# The first token is prefill's. Rounds of 3: [1 1 1] -> 4 tokens; [0 . .] -> 1; [1 0 .] -> 2; [1] -> 1.
AGREES = np.array([0, 1, 1, 1, 0, 0, 1, 0, 1], dtype=bool)


def test_rounds_of_three() -> None:
    rounds = replay([AGREES], 3)
    # Tokens 1..8: round 1 offers 1-3, all accepted, and emits token 4 as well; round 2 offers 5-7 and fails at once;
    # round 3 offers 6-8, accepts token 6 and emits 7; round 4 offers 8 alone.
    assert rounds.reached == [4, 2, 1]
    assert rounds.accepted == [3, 1, 1]
    assert (rounds.num_rounds, rounds.num_drafted, rounds.num_tokens) == (4, 10, 8)
    assert rounds.by_position() == (3 / 4, 1 / 2, 1.0)


@pytest.mark.parametrize("chain", CHAINS)
def test_every_token_is_emitted_once(chain: int) -> None:
    rng = np.random.default_rng(chain)
    answers = [rng.random(length) < 0.6 for length in (1, 2, 17, 40)]
    rounds = replay(answers, chain)
    assert rounds.num_tokens == sum(len(answer) - 1 for answer in answers)
    assert rounds.reached[0] == rounds.num_rounds
    assert rounds.reached[1:] <= rounds.accepted[:-1]


def test_scores_by_category_and_predicted_speed() -> None:
    always = Answer("code", np.ones(9, dtype=bool), np.full(9, 0.9))
    never = Answer("chat", np.zeros(5, dtype=bool), np.full(5, 0.1))
    costs = PassCosts(1.5, 1.0, {1: 10.0} | {chain + 1: 12.0 for chain in CHAINS})
    chat, code, whole = score([always, never], costs)
    assert [item.category for item in (chat, code, whole)] == ["chat", "code", "all"]
    assert (code.agreement, chat.agreement, whole.agreement) == (1.0, 0.0, 8 / 12)
    assert whole.overlap == pytest.approx((8 * 0.9 + 4 * 0.1) / 12)
    assert (whole.num_prompts, whole.num_tokens) == (2, 12)
    one = code.chains[0]
    assert (one.chain, one.acceptance_rate, one.acceptance_length) == (1, 1.0, 2.0)
    assert one.tokens_per_s == pytest.approx(1e3 * 2 / 13.5)
    assert one.speedup == pytest.approx(20 / 13.5)
    assert chat.chains[-1].speedup == pytest.approx(10 / (8.5 + 12))
    assert code.by_position[:3] == (1.0, 1.0, 1.0)
