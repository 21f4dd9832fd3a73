"""Which draft to ship: one sentence with its reason."""

from __future__ import annotations

import pytest

from pilotfish.runtime.report.drafts_page import Candidate, advice, drafts_page
from pilotfish.runtime.shape_evaluation import ShapeScores, SourceScores


def candidate(bundle: str, speed: float, *, gain: float, megabytes: int, formats: str = "int4 and int4") -> Candidate:
    slow = ShapeScores("chain of 1", 0.5, 1.4, (0.5,), speed / 2, gain / 2)
    fast = ShapeScores("dynamic tree", 0.4, 2.5, (0.7, 0.6), speed, gain)
    scores = tuple(SourceScores(name, 3, (slow, fast)) for name in ("chat", "code", "all"))
    return Candidate(bundle, "draft", formats, megabytes << 20, scores)


def test_the_fastest_is_advised() -> None:
    said = advice([candidate("a", 100, gain=1.5, megabytes=90), candidate("b", 150, gain=2.2, megabytes=100)])
    assert said == (
        "Ship the draft of b: it gives 2.50 tokens a round (dynamic tree) and so promises 150 tokens/s, 2.20 times "
        "plain decoding, 50% more than the draft of a."
    )


def test_of_those_that_are_as_fast_the_smaller_one() -> None:
    said = advice([candidate("a", 148, gain=2.1, megabytes=90), candidate("b", 150, gain=2.2, megabytes=100)])
    assert said.startswith("Ship the draft of a: ")
    assert said.endswith("which is 99% of the fastest, the draft of b, with 10.0 MiB less memory.")


@pytest.mark.parametrize("gain", [0.9, 1.02])
def test_none_where_nothing_pays(gain: float) -> None:
    assert advice([candidate("a", 100, gain=gain, megabytes=90)]).startswith("Ship none of them: the best one")


def test_one_alone() -> None:
    assert advice([candidate("a", 100, gain=1.5, megabytes=9)]).endswith("1.50 times plain decoding.")


def test_the_page_has_every_draft_and_says_what_it_does_not_compare() -> None:
    found = [
        candidate("a", 100, gain=1.5, megabytes=90),
        candidate("<b>", 150, gain=2, megabytes=9, formats="int8 and int4"),
    ]
    text = drafts_page(found, "a processor", "prompts.jsonl").html()
    for name in ("speed", "kinds", "acceptance"):
        assert f'<figure id="{name}">' in text
    assert "draft of &lt;b&gt;" in text
    assert "<b>" not in text
    assert "not the answers" in text
