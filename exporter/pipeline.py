"""The export from end to end: load, trace, fuse, pack, compare, write."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnx_ir as ir

from . import contract
from .bundle import MANIFEST, TOKENIZER, file_entry
from .errors import OptionError, TokenizerError, UnsupportedModelError
from .files import check_output, new_folder
from .graph_file import write_graph
from .load import Checkpoint, load_checkpoint, load_tokenizer_of
from .manifest import FormatsEntry, Manifest, ModelEntry, SourceEntry, TokenizerEntry
from .options import ExportOptions, ModelFormats
from .pair import check_pair
from .parity import NUM_STEPS, Parity, check_parity, parity_ids
from .passes import Plan, fuse
from .passes.check import NODES_PER_LAYER
from .progress import NoProgress, Progress
from .rotary_tables import rotary_tables
from .tokenizer import TokenizerInfo
from .trace import build_on_meta, trace
from .weights import StoredTensor, count_tensors, write_weights


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """One row of the summary table."""

    name: str  # "target" or "draft"
    source: str
    architecture: str
    parameters: int
    bytes: int  # of the weights file
    bits_per_weight: float  # packed matrices only, scales included
    num_layers: int
    num_nodes: int
    nodes_per_layer: int
    parity: Parity | None


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

    `target` and `draft` are hub ids, folders with safetensors or .gguf files. Nothing is left at `out` on failure.

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
            models[name], summary = _export_model(name, checkpoint, tokenizer, folder, options, progress)
            summaries.append(summary)
        progress.stage("write manifest", 1)
        manifest = Manifest(_versions(), _tokenizer_entry(folder, tokenizer), tokenizer.chat_template, models)
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        progress.advance()
        size = sum(path.stat().st_size for path in folder.iterdir())
    progress.finish()
    return ExportResult(out, size, manifest, tuple(summaries))


def _export_model(
    name: str, checkpoint: Checkpoint, tokenizer: TokenizerInfo, folder: Path, options: ExportOptions, progress: Progress
) -> tuple[ModelEntry, ModelSummary]:
    formats: ModelFormats = getattr(options, name)
    num_layers = int(checkpoint.config.num_hidden_layers)
    progress.stage(f"trace {name}", 2)
    model = build_on_meta(checkpoint.config)
    source = checkpoint.source(model)
    graph = trace(model)
    progress.advance()
    plan = fuse(graph, formats, options.cache_dtype, num_layers)
    progress.advance()

    progress.stage(f"quantise and pack {name}", count_tensors(plan))
    max_positions = _max_positions(checkpoint, options)
    tables = rotary_tables(model, plan.rotary_module, max_positions)
    weights_path, graph_path = folder / f"{name}.bin", folder / f"{name}.onnx"
    tensors = write_weights(plan, source, tables, weights_path, progress.advance)
    write_graph(graph, plan, tensors, weights_path.name, graph_path)

    parity = None
    if options.parity:
        progress.stage(f"compare {name} with torch", NUM_STEPS)
        ids = parity_ids(tokenizer.json_text, options.parity_tokens)
        files = (graph_path, weights_path)
        parity = check_parity(
            *files, checkpoint.config, source, plan, tensors, ids, options.cache_dtype, progress.advance
        )
    entry = _model_entry(checkpoint, graph, plan, tensors, graph_path, weights_path, max_positions, options, parity)
    matrix_bytes = sum(tensor.bytes for tensor in tensors if tensor.name in plan.weights)
    matrix_weights = sum(weight.out_features * weight.in_features for weight in plan.weights.values())
    summary = ModelSummary(
        name=name,
        source=checkpoint.id,
        architecture=entry.architecture,
        parameters=entry.parameters,
        bytes=entry.weights.bytes,
        bits_per_weight=8 * matrix_bytes / matrix_weights,
        num_layers=num_layers,
        num_nodes=len(graph.graph),
        nodes_per_layer=NODES_PER_LAYER,
        parity=parity,
    )
    return entry, summary


def _model_entry(  # noqa: PLR0913
    checkpoint: Checkpoint,
    graph: ir.Model,
    plan: Plan,
    tensors: tuple[StoredTensor, ...],
    graph_path: Path,
    weights_path: Path,
    max_positions: int,
    options: ExportOptions,
    parity: Parity | None,
) -> ModelEntry:
    attentions = [node.attributes for node in graph.graph if node.op_type == "PagedAttention"]
    heads = {name: {item[name].as_int() for item in attentions} for name in ("num_heads", "num_kv_heads", "head_dim")}
    if any(len(values) > 1 for values in heads.values()):
        raise UnsupportedModelError(f"{checkpoint.id} has layers with different heads; one shape for all layers is supported")
    windows = {item["sliding_window"].as_int() for item in attentions}
    embedding = next(node.attributes for node in graph.graph if node.op_type == "Embedding")
    gate_up = next(weight for weight in plan.weights.values() if weight.interleaved)
    used = {source for item in (*plan.weights.values(), *plan.vectors.values()) for source in item.sources}
    head = list(graph.graph)[-1].attributes
    return ModelEntry(
        graph=file_entry(graph_path),
        weights=file_entry(weights_path),
        tensors=tensors,
        architecture=str(checkpoint.config.model_type),
        num_layers=len(attentions),
        hidden_size=embedding["num_columns"].as_int(),
        intermediate_size=gate_up.out_features // 2,
        num_heads=heads["num_heads"].pop(),
        num_kv_heads=heads["num_kv_heads"].pop(),
        head_dim=heads["head_dim"].pop(),
        vocab_size=head["out_features"].as_int(),
        max_positions=max_positions,
        sliding_window=windows.pop() if len(windows) == 1 else 0,  # layers that differ keep every token
        cache_dtype=options.cache_dtype,
        formats=FormatsEntry(gate_up.format, embedding["format"].as_string(), head["format"].as_string()),
        parameters=sum(_size(plan.shape(name)) for name in used),
        source=SourceEntry(checkpoint.id, checkpoint.sha256, checkpoint.licence),
        parity=asdict(parity) if parity is not None else {},
    )


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for axis in shape:
        total *= axis
    return total


def _max_positions(checkpoint: Checkpoint, options: ExportOptions) -> int:
    limit = int(checkpoint.config.max_position_embeddings)
    if options.max_positions is not None and options.max_positions > limit:
        raise OptionError(f"max_positions is {options.max_positions}; {checkpoint.id} was made for at most {limit}")
    return options.max_positions or limit


def _tokenizer(target: Checkpoint, options: ExportOptions) -> TokenizerInfo:
    tokenizer = target.tokenizer if options.tokenizer is None else load_tokenizer_of(options.tokenizer)
    if tokenizer is None:
        raise TokenizerError(f"{target.id} has no tokenizer; give a folder or hub id with tokenizer=")
    if tokenizer.size > target.config.vocab_size:
        raise TokenizerError(
            f"the tokenizer has {tokenizer.size} tokens, {target.id} only {target.config.vocab_size}; it belongs to another model"
        )
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
    found = {}
    for name in ("pilotfish", "torch", "transformers", "onnx-ir", "onnxscript"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # pilotfish run from its source folders
            found[name] = "source"
    return found
