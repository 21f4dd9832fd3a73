"""How often a draft is right: the target answers a few prompts in the bundle that is being made, the draft follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilotfish.bindings import Model, PilotfishError
from pilotfish.runtime.engine import Engine

from .draft_prompts import PROMPTS
from .errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

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


def open_bundle(folder: Path, max_positions: int) -> Engine:
    """The bundle as it is, with room for all prompts at once.

    Raises:
        OptionError: no engine can open it here, so that nothing can be tried.
    """
    try:
        return Engine(folder, calibration="off", num_sequences=len(PROMPTS), max_context=min(_CONTEXT, max_positions))
    except PilotfishError as error:
        raise OptionError(
            f"the draft cannot be tried here: {error}; or say what trying would decide: --draft-linear, "
            "--draft-embedding, --draft-lm-head and --draft-vocab (draft=FormatChoice(...), draft_vocab=)"
        ) from error


def answer_prompts(engine: Engine, progress: Progress) -> tuple[Answer, ...]:
    """The target's answers; without those that are empty, and prompts that its context does not hold."""
    encoded = _encoded(engine, progress)
    prompts = [ids for ids in encoded if 0 < len(ids) <= engine.info.max_context - _NEW_TOKENS]
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


def _encoded(engine: Engine, progress: Progress) -> list[list[int]]:
    if engine.manifest.chat_template is not None:
        try:
            return [engine.encode_chat([{"role": "user", "content": prompt}]) for prompt in PROMPTS]
        except PilotfishError as error:
            progress.note(f"drafts are tried without the chat template, which cannot be used: {error}")
    return [engine.encode(prompt) for prompt in PROMPTS]
