"""A draft model: written in its default formats and tried, then in smaller ones if these could promise more.

It is tried on a few prompts, which the target answers. What it guesses among fewer ids follows from the same logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pilotfish.runtime.draft_evaluation import CHAINS

from .draft_choice import REASON, choose
from .draft_prompts import PROMPTS
from .draft_speed import pass_bytes, target_bytes, trial, vocabulary_sizes
from .draft_trials import agreement, answer_prompts, open_bundle
from .draft_vocabulary import Ranking, choose_ids
from .manifest_file import write_manifest
from .model_entry import model_entry
from .model_export import compared, export_model, trace_model
from .options import FAST_FORMATS, PARTS, FormatChoice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pilotfish.runtime.manifest import DraftTrial

    from .begun_bundle import BegunBundle
    from .draft_choice import Vocabularies
    from .draft_speed import Agreements
    from .draft_trials import Answer
    from .draft_vocabulary import DraftVocabulary
    from .load import Checkpoint
    from .model_export import ExportedModel, TracedModel
    from .options import ExportOptions
    from .progress import Progress
    from .tokenizer import TokenizerInfo

_PINS = "--draft-linear, --draft-embedding, --draft-lm-head and --draft-vocab (draft=FormatChoice(...), draft_vocab=)"


def draft_vocabularies(options: ExportOptions, tokenizer: TokenizerInfo, draft: Checkpoint) -> Vocabularies:
    """The ids that were asked for, or several numbers of ids and all of them.

    Raises:
        OptionError: more ids than the draft has, or a text that cannot be read.
    """
    limit, text = min(int(draft.config.vocab_size), tokenizer.size), options.draft_vocab_text
    if options.draft_vocab is not None:
        return [choose_ids("draft_vocab", options.draft_vocab, text, tokenizer, limit=limit, owner=draft.id)]
    return all_vocabularies(tokenizer, text, limit)


def all_vocabularies(tokenizer: TokenizerInfo, text: Path | None, limit: int) -> Vocabularies:
    """What there is to choose from where no number of ids was asked for; `limit`: how many there are.

    Raises:
        OptionError: a text that cannot be read.
    """
    ranking = Ranking.of(tokenizer, text)
    return [*(ranking.first(size) for size in vocabulary_sizes(limit)), None]


def export_draft(
    checkpoint: Checkpoint,
    bundle: BegunBundle,
    vocabularies: Vocabularies,
) -> tuple[ExportedModel, tuple[DraftTrial, ...]]:
    """Writes draft.onnx and draft.bin beside the target's files; also what was tried, if there was a choice.

    Raises:
        CheckpointError, UnsupportedModelError, OptionError, ParityError: see `errors`.
    """
    asked = bundle.options.draft
    traced = trace_model("draft", checkpoint, bundle.progress)
    choice = choose(_Maker(checkpoint, traced, bundle), asked, vocabularies, [FAST_FORMATS])
    reasons = {part: REASON for part in PARTS if choice.is_chosen(part, asked)}
    formats = (
        replace(item, warning=None, reason=reasons.get(item.part, item.reason)) for item in choice.written.formats
    )
    draft = replace(choice.written, formats=tuple(formats))
    if bundle.options.parity:
        draft = compared(draft, bundle.tokenizer, bundle.options, bundle.progress)
    return draft, choice.trials


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the draft of a bundle."""

    checkpoint: Checkpoint
    traced: TracedModel
    bundle: BegunBundle
    answers: list[Answer] = field(default_factory=list)  # of the target, once it was asked
    knows_fewer_ids: bool = True

    @property
    def progress(self) -> Progress:
        """The bundle's."""
        return self.bundle.progress

    @property
    def id(self) -> str:
        """The checkpoint's."""
        return self.checkpoint.id

    def write(self, formats: FormatChoice, vocabulary: DraftVocabulary | None) -> ExportedModel:
        """Writes the draft, in the place of one that was there."""
        options = replace(self.bundle.options, draft=formats, parity=False)
        return export_model(
            "draft",
            self.checkpoint,
            self.bundle.tokenizer,
            self.bundle.folder,
            vocabulary=vocabulary,
            traced=self.traced,
            options=options,
            progress=self.progress,
        )

    def measure(self, written: ExportedModel, vocabularies: Sequence[DraftVocabulary | None]) -> list[Agreements]:
        """What the draft guesses of the answers, which the target gives where there are none yet."""
        folder = self.bundle.folder
        models = {"target": self.bundle.target_entry, "draft": model_entry(written, self.bundle.options)}
        write_manifest(folder, self.bundle.tokenizer, models, None)
        self.progress.stage("try draft", len(PROMPTS) + 1 if not self.answers else len(self.answers))
        with open_bundle(folder, min(model.max_positions for model in models.values()), "draft", _PINS) as engine:
            if not self.answers:
                self.answers.extend(answer_prompts(engine, self.progress))
            if not self.answers:
                return []
            found = agreement(engine, self.answers, vocabularies, self.progress)
        return [dict.fromkeys(CHAINS, agrees) for agrees in found]

    def trial(
        self,
        written: ExportedModel,
        formats: FormatChoice,
        vocabulary: DraftVocabulary | None,
        guesses: Agreements,
    ) -> DraftTrial:
        """What it promises to have a draft's matrices in these formats, as it has them where nothing is said."""
        weights = written.plan.weights
        num_logits = weights.get("lm_head", weights["embedding"]).out_features
        scored = num_logits if vocabulary is None else len(vocabulary.ids)
        step = pass_bytes(written.graph, weights, formats, scored) / target_bytes(self.bundle.target)
        stored = {decision.part: "+".join(name for name, _ in decision.shares) for decision in written.formats}
        linear, embedding, lm_head = (getattr(formats, part) or stored[part] for part in PARTS)
        return trial((linear, embedding, lm_head), scored, lambda chain: chain * step, guesses)
