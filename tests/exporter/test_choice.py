"""What is tried of a draft or head whose acceptance in each format is known, in which order, and what is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pilotfish.exporter import FormatChoice, NoProgress
from pilotfish.exporter.draft_choice import choose
from pilotfish.exporter.draft_vocabulary import DraftVocabulary
from pilotfish.exporter.options import SMALLER_HEAD_FORMATS
from pilotfish.runtime.manifest import DraftTrial

SIZES = {"int8": 1.0, "int4": 0.53, "int4_asym": 0.59}
ALL, FEW = 1000, 250
Lengths = dict[tuple[str, int], float]  # tokens a round, by format and ids


@dataclass
class KnownHead:
    """A head that is as often right as `lengths` say; with fewer ids it is thought to be as in `expected`."""

    lengths: Lengths
    expected: dict[int, float] = field(default_factory=dict)
    knows_fewer_ids: bool = False
    id: str = "head"
    progress: NoProgress = field(default_factory=NoProgress)
    written: list[tuple[str, int]] = field(default_factory=list)

    def write(self, formats: FormatChoice, vocabulary: DraftVocabulary | None) -> tuple[str, int]:
        self.written.append((formats.linear or "int8", num_ids(vocabulary)))
        return self.written[-1]

    def measure(self, written: tuple[str, int], vocabularies: list[DraftVocabulary | None]) -> list[float]:
        assert written == self.written[-1]
        if not self.lengths:
            return []
        ids = map(num_ids, vocabularies)
        return [self.lengths[written] if count == written[1] else self.expected[count] for count in ids]

    def trial(
        self, written: tuple[str, int], formats: FormatChoice, vocabulary: DraftVocabulary | None, length: float
    ) -> DraftTrial:
        kind, count = formats.linear or written[0], num_ids(vocabulary)
        step = 0.2 * SIZES[kind] * (0.5 + count / (2 * ALL))
        return DraftTrial(kind, kind, kind, count, step, 0.5, 3, length, length / (3 * step + 1.04))


def num_ids(vocabulary: DraftVocabulary | None) -> int:
    return ALL if vocabulary is None else len(vocabulary.ids)


INT8 = {("int8", ALL): 2.3}
CASES: dict[str, tuple[Lengths, list[tuple[str, int]], tuple[str, int]]] = {
    "as often right": (INT8 | {("int4", ALL): 2.3}, [("int4", ALL)], ("int4", ALL)),
    "right with offsets": (
        INT8 | {("int4", ALL): 1.5, ("int4_asym", ALL): 2.28},
        [("int4", ALL), ("int4_asym", ALL)],
        ("int4_asym", ALL),
    ),
    "seldom right in 4 bits": (
        INT8 | {("int4", ALL): 1.5, ("int4_asym", ALL): 1.4},
        [("int4", ALL), ("int4_asym", ALL), ("int8", ALL)],  # what was tried first is written again
        ("int8", ALL),
    ),
}


@pytest.mark.parametrize(("lengths", "then_written", "kept"), CASES.values(), ids=CASES)
def test_the_fastest_of_what_was_tried_is_kept(
    lengths: Lengths, then_written: list[tuple[str, int]], kept: tuple[str, int]
) -> None:
    head = KnownHead(lengths)
    choice = choose(head, FormatChoice(), [None], SMALLER_HEAD_FORMATS)
    assert head.written == [("int8", ALL), *then_written]
    assert choice.written == kept
    (chosen,) = (item for item in choice.trials if item.is_chosen)
    assert (chosen.linear, chosen.acceptance_length) == (kept[0], lengths[kept])
    assert {item.acceptance_length for item in choice.trials} == set(lengths.values())


@pytest.mark.parametrize(("length", "kept"), [(2.25, FEW), (1.0, ALL)])
def test_fewer_ids_are_tried_once_before_they_are_kept(length: float, kept: int) -> None:
    pinned = FormatChoice("int8", "int8", "int8")
    head = KnownHead(INT8 | {("int8", FEW): length}, {FEW: 2.2, ALL: 2.3})
    choice = choose(head, pinned, [DraftVocabulary(tuple(range(FEW))), None], SMALLER_HEAD_FORMATS)
    assert choice.written == ("int8", kept)
    assert head.written == [("int8", ALL), ("int8", FEW), ("int8", ALL)][: 2 if kept == FEW else 3]
    assert [(item.num_logits, item.acceptance_length) for item in choice.trials] == [(ALL, 2.3), (FEW, length)]


def test_what_is_pinned_is_not_tried_and_what_cannot_be_tried_is_said() -> None:
    choice = choose(KnownHead(INT8), FormatChoice("int8", "int8", "int8"), [None], SMALLER_HEAD_FORMATS)
    assert (choice.written, choice.trials) == (("int8", ALL), ())
    with pytest.warns(UserWarning, match="head was not tried: the target has no answer"):
        choice = choose(KnownHead({}), FormatChoice(), [None], SMALLER_HEAD_FORMATS)
    assert (choice.written, choice.trials) == (("int8", ALL), ())


def test_a_head_that_gains_nothing_is_said() -> None:
    with pytest.warns(UserWarning, match=r"head promises 0\.\d\d of plain decoding's speed, no gain"):
        choose(KnownHead({("int8", ALL): 1.0, ("int4", ALL): 1.0}), FormatChoice(), [None], SMALLER_HEAD_FORMATS)
