"""``pilotfish export``: checkpoints -> bundle. Imports the exporter, and with it torch, only when it runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from pilotfish.bindings import InvalidArgumentError, UnsupportedError
from pilotfish.runtime.memory import format_bytes

from .arguments import Json
from .console import notes, out, show, table, write_json

if TYPE_CHECKING:
    from typing_extensions import Self

    from pilotfish.exporter import ExportResult, ModelSummary

Target = Annotated[str, typer.Argument(metavar="TARGET", help="Hub id, folder with safetensors, or .gguf file.")]
Draft = Annotated[str | None, typer.Option(help="The draft, given as TARGET is.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write the bundle to.")]
Format = Annotated[str, typer.Option(help="int4, int4_asym, int8, f16 or f32.")]
DraftFormat = Annotated[str | None, typer.Option(help="The same for the draft; default: the target's.")]
DraftVocab = Annotated[int | None, typer.Option(help="The draft scores the first so many ids only; default: all.")]
CacheType = Annotated[str, typer.Option(help="Type of keys and values: f16 or f32.")]
MaxPositions = Annotated[int | None, typer.Option(help="Longest context; default: the model's limit.")]
TokenizerFrom = Annotated[str | None, typer.Option("--tokenizer", help="Folder or hub id with the tokenizer.")]
SkipParity = Annotated[bool, typer.Option("--no-parity", help="Skip the comparison with torch.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace DIR if it exists.")]


def export(
    target: Target,
    out_dir: Out,
    *,
    draft: Draft = None,
    linear: Format = "int4",
    embedding: Format = "int8",
    lm_head: Format = "int8",
    draft_linear: DraftFormat = None,
    draft_embedding: DraftFormat = None,
    draft_lm_head: DraftFormat = None,
    draft_vocab: DraftVocab = None,
    cache_dtype: CacheType = "f16",
    max_positions: MaxPositions = None,
    tokenizer: TokenizerFrom = None,
    no_parity: SkipParity = False,
    overwrite: Overwrite = False,
    json_file: Json = None,
) -> None:
    """Export a target, and a draft to speculate with, into one bundle."""
    try:
        from pilotfish import exporter  # noqa: PLC0415 - needs the extra, and torch takes seconds to import
    except ImportError as error:
        raise UnsupportedError(f"exporting needs {error.name}: pip install 'pilotfish[export]'") from error
    try:
        options = exporter.ExportOptions(
            target=exporter.ModelFormats(linear, embedding, lm_head),
            draft=exporter.ModelFormats(draft_linear or linear, draft_embedding or embedding, draft_lm_head or lm_head),
            cache_dtype=cache_dtype,
            draft_vocab=draft_vocab,
            max_positions=max_positions,
            tokenizer=tokenizer,
            parity=not no_parity,
            overwrite=overwrite,
        )
        with _Bars() as bars:
            result = exporter.export(target, out_dir, draft=draft, options=options, progress=bars)
    except exporter.ExportError as error:
        raise InvalidArgumentError(str(error)) from error
    _show(result)
    write_json(json_file, _numbers(result))


class _Bars:
    """The exporter's progress as one bar a stage, on stderr."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = RichProgress(*columns, console=notes())
        self._task: TaskID | None = None

    def stage(self, name: str, total: int) -> None:
        self._complete()
        self._task = self._bars.add_task(name, total=total)

    def advance(self, steps: int = 1) -> None:
        if self._task is not None:
            self._bars.advance(self._task, steps)

    def finish(self) -> None:
        self._complete()

    def _complete(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=self._bars.tasks[self._task].total)
            self._bars.stop_task(self._task)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()


def _show(result: ExportResult) -> None:
    header = ("model", "source", "parameters", "layers", "nodes", "nodes/layer", "bits/weight", "size")
    rows = [
        (
            model.name,
            model.source,
            f"{model.parameters / 1e6:.1f} M",
            str(model.num_layers),
            str(model.num_nodes),
            str(model.nodes_per_layer),
            f"{model.bits_per_weight:.2f}",
            format_bytes(model.bytes),
        )
        for model in result.models
    ]
    out().print(table(str(result.folder), header, rows))
    for model in result.models:
        if model.parity is not None:
            numbers = ", ".join(f"{key} {value:.4g}" for key, value in _parity(model).items())
            show(f"{model.name} against torch: {numbers}")


def _parity(model: ModelSummary) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(model)["parity"].items() if not isinstance(value, str)}


def _numbers(result: ExportResult) -> dict[str, Any]:
    models = [dataclasses.asdict(model) for model in result.models]
    return {"folder": str(result.folder), "bytes": result.bytes, "models": models}
