"""Stop strings are found wherever the text is cut into pieces, and nothing that could be one is shown too early."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.runtime.stop_strings import StopStrings

TEXTS = st.text("ab<", max_size=24)
STOPS = st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3)


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    """Grow the text a character at a time; the first stop string that is complete cuts it."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@given(text=TEXTS, stops=STOPS, cuts=st.lists(st.integers(0, 24), max_size=6))
def test_the_cut_does_not_depend_on_the_pieces(text: str, stops: list[str], cuts: list[int]) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    watcher = StopStrings(stops)
    shown, stopped = "", False
    for start, end in itertools.pairwise(borders):
        piece, stopped = watcher.push(text[start:end])
        shown += piece
        assert expected(text, stops)[0].startswith(shown)
        if stopped:
            break
    assert (shown + watcher.flush(), stopped) == expected(text, stops)


def test_only_the_possible_beginning_is_held_back() -> None:
    watcher = StopStrings(["</s>", "stop"])
    assert watcher.push("don't s") == ("don't ", False)
    assert watcher.held == "s"
    assert watcher.push("tay <") == ("stay ", False)
    assert watcher.push("/s> more") == ("", True)
    assert watcher.held == ""
