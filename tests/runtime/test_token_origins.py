"""Each token's origin, from the rounds that the option explain reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pilotfish import Engine
from pilotfish.runtime.results import Event, Round
from pilotfish.runtime.token_origins import ORIGINS, OriginTeller

if TYPE_CHECKING:
    from pathlib import Path


def round_of(num_tokens: int, *, lookup: int = 0, model: int = 0, head: int = 0, ranks: tuple[int, ...] = ()) -> Round:
    return Round("best", lookup, model, 0.0, 0.0, head, 0, 0, lookup + model + head, num_tokens, ranks)


def tell(rounds: list[Round], origins: list[str]) -> list[str]:
    teller = OriginTeller()
    return [teller.tell(Event("x", 0, 0.0, origin, 0.0), rounds) for origin in origins]


def test_the_source_of_an_accepted_token_is_its_rounds() -> None:
    rounds = [
        round_of(1),
        round_of(3, lookup=4, ranks=(-1, -1)),
        round_of(2, model=2, ranks=(0,)),
        round_of(2, head=2, ranks=(1,)),
        round_of(4, lookup=3, model=2, ranks=(-1, 0, -1)),
    ]
    accepted, bonus, corrected = "accepted", "bonus", "corrected"
    told = tell(
        rounds,
        [
            *["prompt", "plain", "plain"],
            *[accepted, accepted, bonus],
            *[accepted, corrected],
            *[accepted, corrected],
            *[accepted, accepted, accepted, bonus],
        ],
    )
    assert told == [
        *["plain", "plain", "plain"],
        *["lookup", "lookup", "plain"],
        *["draft", "corrected"],
        *["head", "corrected"],
        *["lookup", "draft", "lookup", "plain"],
    ]
    assert set(told) == set(ORIGINS)


def test_a_drawn_token_of_a_model_is_the_models() -> None:
    """Rank -1 says that it was drawn where nothing was looked up."""
    assert tell([round_of(2, model=1, ranks=(-1,))], ["plain", "accepted", "bonus"]) == ["plain", "draft", "plain"]


@pytest.mark.parametrize("source", ["auto", "draft", "lookup", "lookup+draft"])
def test_they_agree_with_the_counters(tiny_bundle: Path, source: str) -> None:
    with (
        Engine(tiny_bundle, threads=1) as engine,
        engine.stream("abc abc abc", max_new_tokens=60, source=source, explain=True, ignore_eos=True) as stream,
    ):
        teller = OriginTeller()
        told = [teller.tell(event, stream.rounds) for event in stream]
        stats = stream.stats
    assert len(told) == stats.num_new_tokens
    assert told.count("lookup") == stats.num_lookup_accepted
    assert told.count("draft") == stats.num_model_accepted
