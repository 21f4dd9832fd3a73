"""A head: its graphs on the exported target, in the format that promises most, its manifest entry and its summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from .draft_choice import REASON, choose
from .draft_export import all_vocabularies
from .draft_vocabulary import choose_ids
from .errors import UnsupportedModelError
from .head_maker import HeadMaker, target_parts
from .head_parity import NUM_STEPS, check_head_parity
from .head_sharing import without_copies
from .heads import num_own_ids
from .options import PARTS, SMALLER_HEAD_FORMATS, FormatChoice
from .parity import parity_ids

if TYPE_CHECKING:
    from .begun_bundle import BegunBundle
    from .draft_choice import Choice, Vocabularies
    from .head_maker import WrittenHead
    from .heads import HeadCheckpoint
    from .manifest import HeadEntry
    from .options import ExportOptions
    from .parity import Parity
    from .tokenizer import TokenizerInfo


@dataclass(frozen=True, slots=True)
class HeadSummary:
    """The head's lines of the summary."""

    kind: str
    source: str
    parameters: int
    bytes: int  # of the weights file
    shared_bytes: int  # of the target's file that it reads beside them
    format: str
    format_reason: str
    taps: tuple[int, ...]
    num_logits: int
    vocab_size: int
    logit_coverage: float | None  # share of the text's tokens that a trimmed output layer scores
    parity: Parity | None


def head_vocabularies(
    options: ExportOptions, tokenizer: TokenizerInfo, head: HeadCheckpoint, target_id: str, *, has_draft: bool
) -> Vocabularies:
    """The ids that were asked for, or several numbers of ids and all of them; those of a head's own choice are left.

    Raises:
        OptionError: more ids than the target has, or a text that cannot be read.
        UnsupportedModelError: ids are asked for, and the head has made its own choice.
    """
    text, num_own = options.draft_vocab_text, num_own_ids(head)
    if num_own is not None:
        asked = {"head_vocab": options.head_vocab, "draft_vocab_text": None if has_draft else text}
        for name in (name for name, value in asked.items() if value is not None):
            raise UnsupportedModelError(f"{head.id} scores {num_own} ids of its own choice; {name} cannot change them")
        return [None]
    if options.head_vocab is not None:
        return [choose_ids("head_vocab", options.head_vocab, text, tokenizer, limit=tokenizer.size, owner=target_id)]
    return all_vocabularies(tokenizer, text, tokenizer.size)


def export_head(
    checkpoint: HeadCheckpoint,
    bundle: BegunBundle,
    vocabularies: Vocabularies,
) -> tuple[HeadEntry, HeadSummary]:
    """Writes head.bin and one head.{role}.onnx a graph into the bundle, in the format that promises most.

    Raises:
        CheckpointError, UnsupportedModelError: a head that does not fit the target, or of another variant.
        OptionError: a head that has to be tried and cannot be tried here.
        ParityError: its graphs differ from torch.
    """
    parts = target_parts(bundle.target, bundle.tokenizer.size)
    maker = HeadMaker(without_copies(checkpoint, parts), parts, bundle)
    asked = FormatChoice(*(bundle.options.head_format for _ in PARTS))
    choice = choose(maker, asked, vocabularies, SMALLER_HEAD_FORMATS)
    parity = _compared(choice.written, maker) if bundle.options.parity else None
    entry = replace(
        maker.entry(choice.written, choice.vocabulary),
        parity={} if parity is None else asdict(parity),
        trials=choice.trials,
    )
    return entry, _summary(entry, choice, asked, parity)


def _compared(head: WrittenHead, maker: HeadMaker) -> Parity:
    bundle = maker.bundle
    options, target, progress = bundle.options, bundle.target, bundle.progress
    progress.stage("compare head with torch", NUM_STEPS)
    return check_head_parity(
        head.model,
        maker.checkpoint,
        head.target,
        target,
        {head.weights_path: head.own, target.weights_path: head.shared},
        folder=bundle.folder,
        ids=parity_ids(bundle.tokenizer.json_text, min(options.parity_tokens, target.max_positions)),
        cache_dtype=options.cache_dtype,
        advance=progress.advance,
    )


def _summary(entry: HeadEntry, choice: Choice[WrittenHead], asked: FormatChoice, parity: Parity | None) -> HeadSummary:
    head, vocabulary = choice.written, choice.vocabulary
    default = "as asked for" if asked.linear else "default"
    return HeadSummary(
        kind=entry.kind,
        source=entry.source,
        parameters=entry.parameters,
        bytes=entry.weights.bytes,
        shared_bytes=sum(tensor.bytes for tensor in head.shared),
        format=entry.format,
        format_reason=REASON if choice.is_chosen("linear", asked) else default,
        taps=entry.taps,
        num_logits=entry.num_logits,
        vocab_size=head.target.vocab_size,
        logit_coverage=None if vocabulary is None else vocabulary.coverage,
        parity=parity,
    )
