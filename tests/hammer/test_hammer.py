"""The hammer itself: what it draws, and that it notices what it is there to notice."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))

from cases import AXES, PROMPTS, WAYS, draw_case, pairs_of
from compare import Expected, fault_of
from perform import Seen
from soak import Usage, faults_of

KINDS = ("pair", "int8_cache", "eagle", "medusa", "mlp_speculator", "mtp")
# Drafts of a kind that no bundle here has together with the other choice, or that are refused: what is left of the
# pairs must all be drawn.
MOST_NEVER_DRAWN = 12


def test_every_choice_meets_each_choice_of_the_other_axes() -> None:
    axes = {**{axis: tuple(values) for axis, values in AXES.items()}, "way": WAYS, "prompt": PROMPTS}
    every = {
        (f"{one}: {first}", f"{other}: {second}")
        for one, other in itertools.combinations(sorted(axes), 2)
        for first in axes[one]
        for second in axes[other]
    }
    drawn = {
        pair for number in range(20_000) for pair in pairs_of(draw_case(1, number, KINDS[number % 6], 256).choices)
    }
    assert drawn <= every
    assert len(every - drawn) <= MOST_NEVER_DRAWN, sorted(every - drawn)


def test_a_seed_and_a_number_say_all() -> None:
    assert draw_case(5, 77, "pair", 128) == draw_case(5, 77, "pair", 128)
    assert draw_case(5, 77, "pair", 128) != draw_case(6, 77, "pair", 128)


WHOLE = Seen(((1, 2, 3),), (("-0.5", "-1.5", "-2.5"),), ((),), ("abc",), ("length",))
PART = Seen(((1, 2),), (("-0.5", "-1.5"),), ((),), ("ab",), (None,))


@pytest.mark.parametrize(
    ("way", "found", "fault"),
    [
        ("generate", WHOLE, ""),
        ("generate", PART, "other token_ids, other logprobs, other texts, other finish_reasons"),
        ("generate", WHOLE._replace(logprobs=(("-0.5", "-1.5", "-2.5000002"),)), "other logprobs"),
        ("generate", Seen(error="ContextFullError: full"), "an error that it has not alone"),
        ("generate", Seen(error="InternalError: lost"), "an error that is pilotfish's own bug"),
        ("drop", PART, ""),
        ("drop", PART._replace(token_ids=((1, 3),)), "other token_ids"),
        ("drop", PART._replace(texts=("b",)), "other text"),
        ("cancel", PART._replace(finish_reasons=("cancelled",), texts=("a?",)), ""),
        ("cancel", PART._replace(finish_reasons=("length",)), "another end"),
    ],
)
def test_what_differs_is_a_fault(way: str, found: Seen, fault: str) -> None:
    case = next(each for each in (draw_case(1, n, "pair", 128) for n in itertools.count()) if each.way == way)
    assert fault_of(case, found, Expected(WHOLE, frozenset()), is_reproducible=True) == fault


def test_an_error_must_be_one_that_the_request_has_alone() -> None:
    case = next(each for each in (draw_case(1, n, "pair", 128) for n in itertools.count()) if each.way == "generate")
    expected = Expected(Seen(error="ContextFullError: full"), frozenset({"ContextFullError: full"}))
    assert fault_of(case, Seen(error="ContextFullError: full"), expected, is_reproducible=True) == ""
    assert fault_of(case, Seen(error="ContextFullError: other"), expected, is_reproducible=True) != ""
    assert fault_of(case, WHOLE, expected, is_reproducible=True) == "no error, and alone it has one"


def test_the_soak_notices_what_grows() -> None:
    steady = [Usage(90_000, 6, 2)] * 9
    assert faults_of(steady) == []
    assert len(faults_of([*steady, Usage(90_000, 7, 2)])) == 1
    assert len(faults_of([*steady, Usage(90_000, 6, 3)])) == 1
    assert len(faults_of([*steady, Usage(95_000, 6, 2)])) == 1
