"""A draft model: the formats and the vocabulary that promise most tokens a second are tried, chosen and written.

The draft is written in its default formats and tried on a few prompts, which the target answers. What it
guesses among fewer ids follows from the same logits. Smaller formats are tried if they could promise more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .draft_prompts import PROMPTS
from .draft_speed import pass_bytes, trial, vocabulary_sizes
from .draft_trials import agreement, answer_prompts, open_bundle
from .draft_vocabulary import Ranking, choose_ids
from .manifest_file import write_manifest
from .model_entry import model_entry
from .model_export import compared, export_model
from .options import FAST_FORMATS, PARTS, FormatChoice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pilotfish.runtime.manifest import DraftTrial

    from .draft_speed import Agreement
    from .draft_trials import Answer
    from .draft_vocabulary import DraftVocabulary
    from .load import Checkpoint
    from .manifest import ModelEntry
    from .model_export import ExportedModel
    from .options import ExportOptions
    from .progress import Progress
    from .tokenizer import TokenizerInfo

_NEARLY = 0.98
_REASON = "promises most tokens a second"


Vocabularies = list["DraftVocabulary | None"]  # that there are to choose from; None: all ids


def draft_vocabularies(options: ExportOptions, tokenizer: TokenizerInfo, draft: Checkpoint) -> Vocabularies:
    """The ids that were asked for, or several numbers of ids and all of them.

    Raises:
        OptionError: more ids than the draft has, or a text that cannot be read.
    """
    limit, text = min(int(draft.config.vocab_size), tokenizer.size), options.draft_vocab_text
    if options.draft_vocab is not None:
        return [choose_ids("draft_vocab", options.draft_vocab, text, tokenizer, limit=limit, owner=draft.id)]
    ranking = Ranking.of(tokenizer, text)
    return [*(ranking.first(size) for size in vocabulary_sizes(limit)), None]


def export_draft(
    checkpoint: Checkpoint,
    target: ExportedModel,
    target_entry: ModelEntry,
    tokenizer: TokenizerInfo,
    folder: Path,
    *,
    vocabularies: Vocabularies,
    options: ExportOptions,
    progress: Progress,
) -> tuple[ExportedModel, tuple[DraftTrial, ...]]:
    """Writes draft.onnx and draft.bin beside the target's files; also what was tried, if there was a choice.

    Raises:
        CheckpointError, UnsupportedModelError, OptionError, ParityError: see `errors`.
    """
    work = _Work(checkpoint, target, target_entry, tokenizer, folder, options, progress)
    trials: tuple[DraftTrial, ...] = ()
    if len(vocabularies) == 1 and all(getattr(options.draft, part) for part in PARTS):
        draft = work.write(options.draft, vocabularies[0])
    else:
        draft, trials = _choose(work, vocabularies)
    draft = replace(draft, formats=tuple(replace(decision, warning=None) for decision in draft.formats))
    return compared(draft, tokenizer, options, progress) if options.parity else draft, trials


@dataclass(frozen=True, slots=True)
class _Work:
    """The bundle that is being made."""

    checkpoint: Checkpoint
    target: ExportedModel
    target_entry: ModelEntry
    tokenizer: TokenizerInfo
    folder: Path
    options: ExportOptions
    progress: Progress

    def write(self, formats: FormatChoice, vocabulary: DraftVocabulary | None) -> ExportedModel:
        """Writes the draft, in the place of one that was there."""
        options = replace(self.options, draft=formats, parity=False)
        return export_model(
            "draft",
            self.checkpoint,
            self.tokenizer,
            self.folder,
            vocabulary=vocabulary,
            options=options,
            progress=self.progress,
        )

    def measure(
        self, draft: ExportedModel, vocabularies: Sequence[DraftVocabulary | None], answers: Sequence[Answer] | None
    ) -> tuple[Sequence[Answer], list[Agreement]]:
        """What the draft guesses of the answers, which the target gives now where there are none yet."""
        models = {"target": self.target_entry, "draft": model_entry(draft, self.options)}
        write_manifest(self.folder, self.tokenizer, models, None)
        self.progress.stage("try draft", len(PROMPTS) + 1 if answers is None else len(answers))
        with open_bundle(self.folder, min(model.max_positions for model in models.values())) as engine:
            if answers is None:
                answers = answer_prompts(engine, self.progress)
            return answers, agreement(engine, answers, vocabularies, self.progress)

    def trial(
        self, draft: ExportedModel, formats: FormatChoice, vocabulary: DraftVocabulary | None, agrees: Agreement
    ) -> DraftTrial:
        """What it promises to have a draft's matrices in these formats, as it has them where nothing is said."""
        weights = draft.plan.weights
        num_logits = weights.get("lm_head", weights["embedding"]).out_features
        scored = num_logits if vocabulary is None else len(vocabulary.ids)
        step = pass_bytes(draft, formats, scored) / pass_bytes(self.target, FormatChoice(), None)
        stored = {decision.part: "+".join(name for name, _ in decision.shares) for decision in draft.formats}
        linear, embedding, lm_head = (getattr(formats, part) or stored[part] for part in PARTS)
        return trial((linear, embedding, lm_head), scored, step, agrees)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Formats and ids that the draft may have; formats that are None follow the checkpoint."""

    formats: FormatChoice
    vocabulary: DraftVocabulary | None
    trial: DraftTrial


def _choose(work: _Work, vocabularies: Vocabularies) -> tuple[ExportedModel, tuple[DraftTrial, ...]]:
    """Tries the draft in the formats that lose least, then in faster ones with the vocabulary that suits them."""
    asked = work.options.draft
    draft = work.write(asked, vocabularies[-1])
    answers, found = work.measure(draft, vocabularies, None)
    if not answers:
        work.progress.note(f"{work.checkpoint.id} was not tried: the target has no answer to the built-in prompts")
        return draft, ()
    both = list(zip(vocabularies, found, strict=True))
    candidates = [_Candidate(asked, ids, work.trial(draft, FormatChoice(), ids, agrees)) for ids, agrees in both]
    written, best = candidates[-1], _best(candidates)
    fast = FormatChoice(*(getattr(asked, part) or getattr(FAST_FORMATS, part) for part in PARTS))
    promised = _best([_Candidate(fast, ids, work.trial(draft, fast, ids, agrees)) for ids, agrees in both])
    if promised.trial.speedup > best.trial.speedup:
        draft = work.write(fast, promised.vocabulary)
        _, (agrees,) = work.measure(draft, [promised.vocabulary], answers)
        written = replace(promised, trial=work.trial(draft, FormatChoice(), promised.vocabulary, agrees))
        candidates.append(written)
        best = max(best, written, key=lambda item: item.trial.speedup)
    if best is not written:
        draft = work.write(best.formats, best.vocabulary)
    if best.trial.speedup <= 1:
        work.progress.note(f"{work.checkpoint.id} promises {best.trial.speedup:.2f} of plain decoding's speed, no gain")
    trials = tuple(replace(item.trial, is_chosen=item is best) for item in candidates)
    chosen = {part for part in PARTS if getattr(asked, part) is None and getattr(best.formats, part) is not None}
    formats = (replace(item, reason=_REASON) if item.part in chosen else item for item in draft.formats)
    return replace(draft, formats=tuple(formats)), trials


def _best(candidates: Sequence[_Candidate]) -> _Candidate:
    """The largest vocabulary that promises nearly as much as any: a few prompts do not show what is rarely said."""
    most = max(item.trial.speedup for item in candidates)
    good = [item for item in candidates if item.trial.speedup >= _NEARLY * most]
    return max(good, key=lambda item: item.trial.num_logits)
