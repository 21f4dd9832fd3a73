"""How often a draft or head is right, on the target's answers to a few prompts in the bundle that is being made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import Model, PilotfishError
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.options import GenerateKeywords

from .draft_prompts import PROMPTS
from .errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pilotfish.runtime.results import Result

    from .draft_speed import Agreement
    from .draft_vocabulary import DraftVocabulary
    from .progress import Progress

_NEW_TOKENS = 64  # of an answer at most
_CONTEXT = 512


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt and what the target says to it, greedily."""

    ids: tuple[int, ...]  # of both
    num_prompt: int


def open_bundle(folder: Path, max_positions: int, part: str, options: str) -> Engine:
    """The bundle as it is, whose files were just written, with room for all prompts at once.

    part: what is tried, "draft" or "head". options: that say what trying it would decide.

    Raises:
        OptionError: no engine can open it here, so that nothing can be tried.
    """
    try:
        return Engine(
            folder,
            calibration="off",
            num_sequences=len(PROMPTS),
            max_context=min(_CONTEXT, max_positions),
            verify_hashes="never",
        )
    except PilotfishError as error:
        raise OptionError(
            f"the {part} cannot be tried here: {error}; or say what trying would decide: {options}"
        ) from error


def answer_prompts(engine: Engine, progress: Progress) -> tuple[Answer, ...]:
    """The target's answers; without those that are empty, and prompts that its context does not hold."""
    prompts = _prompts(engine, progress)
    results = engine.generate_batch(prompts, max_new_tokens=_NEW_TOKENS, num_draft_tokens=0) if prompts else []
    progress.advance()
    pairs = zip(prompts, results, strict=True)
    return tuple(Answer((*ids, *result.token_ids), len(ids)) for ids, result in pairs if len(result.token_ids) > 1)


def agreement(
    engine: Engine, answers: Sequence[Answer], vocabularies: Sequence[DraftVocabulary | None], progress: Progress
) -> list[Agreement]:
    """What the draft guesses of the answers where it scores a vocabulary's ids only."""
    agrees: list[list[NDArray[np.bool_]]] = [[] for _ in vocabularies]
    scored = [None if vocabulary is None else np.array(vocabulary.ids) for vocabulary in vocabularies]
    for answer in answers:
        said = np.array(answer.ids[answer.num_prompt :])
        logits = engine.logits(answer.ids[:-1], Model.DRAFT)[answer.num_prompt - 1 :]
        for found, ids in zip(agrees, scored, strict=True):
            guessed = logits.argmax(axis=1) if ids is None else ids[logits[:, ids].argmax(axis=1)]
            found.append(guessed == said)
        progress.advance()
    return list(agrees)


def guesses_of_head(
    engine: Engine, chain: int, vocabularies: Sequence[DraftVocabulary | None], progress: Progress
) -> list[Agreement]:
    """Which tokens of the target's answers are the head's, in rounds that draft so many.

    Target and head generate them together: what a head guesses depends on what it has guessed before. With fewer ids a
    round ends at the first token that is none of them; what the head would have guessed from there on is not known, so
    that it is at least as good. [] where the target answers nothing.
    """
    prompts = _prompts(engine, progress)
    options = GenerateKeywords(max_new_tokens=_NEW_TOKENS, source="head", num_draft_tokens=chain, explain=True)
    answers = [result for result in engine.generate_batch(prompts, **options) if result.rounds] if prompts else []
    progress.advance()
    return [[_accepted(answer, vocabulary) for answer in answers] for vocabulary in vocabularies] if answers else []


def _accepted(answer: Result, vocabulary: DraftVocabulary | None) -> NDArray[np.bool_]:
    """Which tokens were drafted: all of a round but its last, and not the first of the answer."""
    last = np.cumsum([each.num_tokens for each in answer.rounds])
    accepted = np.isin(np.arange(len(answer.token_ids)), [0, *last], invert=True)
    return accepted if vocabulary is None else accepted & np.isin(answer.token_ids, vocabulary.ids)


def _prompts(engine: Engine, progress: Progress) -> list[list[int]]:
    """Those that the context holds with an answer."""
    return [ids for ids in _encoded(engine, progress) if 0 < len(ids) <= engine.info.max_context - _NEW_TOKENS]


def _encoded(engine: Engine, progress: Progress) -> list[list[int]]:
    if engine.manifest.chat_template is not None:
        try:
            return [engine.encode_chat([{"role": "user", "content": prompt}]) for prompt in PROMPTS]
        except PilotfishError as error:
            progress.note(f"drafts are tried without the chat template, which cannot be used: {error}")
    return [engine.encode(prompt) for prompt in PROMPTS]
