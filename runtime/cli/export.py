"""``pilotfish export``: checkpoints -> bundle. Imports the exporter, and with it torch, only when it runs.

The signature of `export` is the one table of options: `optimum-cli export pilotfish` is made from it too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilotfish.bindings import InvalidArgumentError, UnsupportedError

from .arguments import Json
from .console import write_json
from .export_report import ExportBars, numbers, show_result
from .signals import signals_exit

Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="Hub id, folder with safetensors, or .gguf file; smollm2: the default.")
]
Adapter = Annotated[
    list[str] | None,
    typer.Option(metavar="DIR", help="Folder with a LoRA adapter to merge into TARGET; may be given again, in order."),
]
Draft = Annotated[str | None, typer.Option(help="The draft, given as TARGET is.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write the bundle to.")]
_OWN = "the blocks of a GGUF file as they are, else"  # what a format is if it is not given
Linear = Annotated[
    str | None,
    typer.Option(help=f"Linear layers: int4, int4_asym, int8, f16 or f32; default: {_OWN} int4."),
]
Embedding = Annotated[str | None, typer.Option(help=f"The same for the embedding; default: {_OWN} int8.")]
LmHead = Annotated[str | None, typer.Option(help=f"The same for the output layer; default: {_OWN} int8.")]
_FASTEST = "what promises most tokens a second"
DraftLinear = Annotated[str | None, typer.Option(help=f"The draft's linear layers; default: {_FASTEST}.")]
DraftEmbedding = Annotated[str | None, typer.Option(help=f"The draft's embedding; default: {_FASTEST}.")]
DraftLmHead = Annotated[str | None, typer.Option(help=f"The draft's output layer; default: {_FASTEST}.")]
Calibration = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Round TARGET's 4-bit matrices so that errors make up for each other on this text."
    ),
]
Bits = Annotated[
    float | None,
    typer.Option(
        help="Bits a weight of TARGET's linear layers on average, 4 to 8: more where --calibration shows most error."
    ),
]
Head = Annotated[
    str | None,
    typer.Option(help="A head on TARGET's hidden states: a hub id or folder; TARGET itself for its MTP layer."),
]
HeadFormat = Annotated[
    str | None,
    typer.Option(help=f"Format of the head's matrices; default: {_FASTEST}."),
]
HeadVocab = Annotated[int | None, typer.Option(help=f"The head scores so many ids only; default: {_FASTEST}.")]
DraftVocab = Annotated[int | None, typer.Option(help=f"The draft scores so many ids only; default: {_FASTEST}.")]
DraftVocabText = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="These ids, and the head's, are a text's most frequent; default: the first N."),
]
CacheType = Annotated[
    str, typer.Option(help="Type of keys and values in the caches: f16 or f32; int8, which is half of f16.")
]
MaxPositions = Annotated[int | None, typer.Option(help="Longest context; default: the model's limit.")]
TokenizerFrom = Annotated[str | None, typer.Option("--tokenizer", help="Folder or hub id with the tokenizer.")]
SkipParity = Annotated[bool, typer.Option("--no-parity", help="Skip the comparison with torch.")]
ParityTokens = Annotated[int, typer.Option(help="Tokens of text that the comparison runs.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace DIR if it exists.")]

IgnoreUnused = Annotated[
    bool, typer.Option("--ignore-unused", help="Export although tensors of a checkpoint are left out.")
]


def export(
    target: Target,
    out_dir: Out,
    *,
    draft: Draft = None,
    adapter: Adapter = None,
    linear: Linear = None,
    embedding: Embedding = None,
    lm_head: LmHead = None,
    calibration: Calibration = None,
    bits: Bits = None,
    draft_linear: DraftLinear = None,
    draft_embedding: DraftEmbedding = None,
    draft_lm_head: DraftLmHead = None,
    draft_vocab: DraftVocab = None,
    draft_vocab_text: DraftVocabText = None,
    head: Head = None,
    head_format: HeadFormat = None,
    head_vocab: HeadVocab = None,
    cache_dtype: CacheType = "f16",
    max_positions: MaxPositions = None,
    tokenizer: TokenizerFrom = None,
    no_parity: SkipParity = False,
    parity_tokens: ParityTokens = 192,
    overwrite: Overwrite = False,
    ignore_unused: IgnoreUnused = False,
    json_file: Json = None,
) -> None:
    """Export a target, and a draft or head, into a bundle."""
    try:
        from pilotfish import exporter  # noqa: PLC0415 - needs the extra, and torch takes seconds to import
    except ImportError as error:
        raise UnsupportedError(f"exporting needs {error.name}: pip install 'pilotfish[export]'") from error
    try:
        options = exporter.ExportOptions(
            target=exporter.FormatChoice(linear, embedding, lm_head),
            draft=exporter.FormatChoice(draft_linear, draft_embedding, draft_lm_head),
            calibration=calibration,
            bits=bits,
            cache_dtype=cache_dtype,
            draft_vocab=draft_vocab,
            draft_vocab_text=draft_vocab_text,
            head_format=head_format,
            head_vocab=head_vocab,
            max_positions=max_positions,
            tokenizer=tokenizer,
            parity=not no_parity,
            parity_tokens=parity_tokens,
            overwrite=overwrite,
            ignore_unused=ignore_unused,
        )
        with signals_exit(), ExportBars() as bars:
            result = exporter.export(
                target, out_dir, draft=draft, head=head, adapters=adapter or (), options=options, progress=bars
            )
    except exporter.ExportError as error:
        raise InvalidArgumentError(str(error)) from error
    show_result(result)
    write_json(json_file, numbers(result))
