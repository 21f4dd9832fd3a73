"""Chooses the formats and the vocabulary of a draft or head by what they promise: tokens a second.

What is made is first written in the formats that lose least and tried. Smaller formats and vocabularies are written
and tried where they would promise more if they were right as often.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from .options import PARTS, FormatChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pilotfish.runtime.manifest import DraftTrial

    from .draft_speed import Agreements
    from .draft_vocabulary import DraftVocabulary
    from .progress import Progress

REASON = "promises most tokens a second"
Vocabularies = list["DraftVocabulary | None"]  # that there are to choose from, the last one without a choice; None: all
_NEARLY = 0.98
_Written = TypeVar("_Written")


class Maker(Protocol[_Written]):
    """Makes a draft or head in the bundle that is being written, and tries it."""

    @property
    def id(self) -> str:
        """What it is called."""

    @property
    def progress(self) -> Progress:
        """Who is told."""

    @property
    def knows_fewer_ids(self) -> bool:
        """Whether what was written says exactly how often a smaller vocabulary is right."""

    def write(self, formats: FormatChoice, vocabulary: DraftVocabulary | None) -> _Written:
        """Writes it, in the place of one that was there."""

    def measure(self, written: _Written, vocabularies: Sequence[DraftVocabulary | None]) -> list[Agreements]:
        """For each vocabulary what it guesses; [] if nothing is known."""

    def trial(
        self,
        written: _Written,
        formats: FormatChoice,
        vocabulary: DraftVocabulary | None,
        guesses: Agreements,
    ) -> DraftTrial:
        """What it promises to have these formats, or what is written where nothing is said, and to guess so much."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[_Written]):
    """What was chosen, and is written."""

    written: _Written
    formats: FormatChoice
    vocabulary: DraftVocabulary | None
    trials: tuple[DraftTrial, ...] = ()  # empty: there was nothing to choose, or nothing to try it on

    def is_chosen(self, part: str, asked: FormatChoice) -> bool:
        """Whether a part has another format than it has where nothing is tried."""
        return getattr(asked, part) is None and getattr(self.formats, part) is not None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Formats and ids that it may have; formats that are None follow the checkpoint."""

    formats: FormatChoice
    vocabulary: DraftVocabulary | None
    trial: DraftTrial


def choose(
    maker: Maker[_Written], asked: FormatChoice, vocabularies: Vocabularies, smaller: Sequence[FormatChoice]
) -> Choice[_Written]:
    """Tries what was asked for with each vocabulary, then smaller formats where nothing was asked for.

    Raises:
        CheckpointError, UnsupportedModelError, OptionError: see `errors`.
    """
    first = maker.write(asked, vocabularies[-1])
    is_pinned = len(vocabularies) == 1 and all(getattr(asked, part) for part in PARTS)
    found = [] if is_pinned else maker.measure(first, vocabularies)
    if not (found or is_pinned):
        maker.progress.note(f"{maker.id} was not tried: the target has no answer to the built-in prompts")
    if not found:
        return Choice(first, asked, vocabularies[-1])
    both = list(zip(vocabularies, found, strict=True))

    def promised(formats: FormatChoice, of: Sequence[tuple[DraftVocabulary | None, Agreements]]) -> list[_Candidate]:
        return [_Candidate(formats, ids, maker.trial(first, formats, ids, guesses)) for ids, guesses in of]

    candidates = promised(asked, both if maker.knows_fewer_ids else both[-1:])
    written, last, best = first, candidates[-1], _best(candidates)
    for formats in dict.fromkeys([*(_merged(asked, each) for each in smaller), asked]):
        candidate = _best(promised(formats, both))
        if candidate.trial.speedup > best.trial.speedup:
            written = maker.write(formats, candidate.vocabulary)
            last = _tried(maker, written, candidate)
            candidates.append(last)
            best = max(best, last, key=lambda item: item.trial.speedup)
    if best is not last:
        written = maker.write(best.formats, best.vocabulary)
    if best.trial.speedup <= 1:
        maker.progress.note(f"{maker.id} promises {best.trial.speedup:.2f} of plain decoding's speed, no gain")
    trials = tuple(replace(item.trial, is_chosen=item is best) for item in candidates)
    return Choice(written, best.formats, best.vocabulary, trials)


def _tried(maker: Maker[_Written], written: _Written, promised: _Candidate) -> _Candidate:
    """With what it promises now that it is known how often it is right."""
    (guesses,) = maker.measure(written, [promised.vocabulary])
    return replace(promised, trial=maker.trial(written, FormatChoice(), promised.vocabulary, guesses))


def _merged(asked: FormatChoice, smaller: FormatChoice) -> FormatChoice:
    return FormatChoice(*(getattr(asked, part) or getattr(smaller, part) for part in PARTS))


def _best(candidates: Sequence[_Candidate]) -> _Candidate:
    """The largest vocabulary that promises nearly as much as any: a few prompts do not show what is rarely said."""
    most = max(item.trial.speedup for item in candidates)
    good = [item for item in candidates if item.trial.speedup >= _NEARLY * most]
    return max(good, key=lambda item: item.trial.num_logits)
