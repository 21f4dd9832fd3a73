"""One model: trace, fuse, quantise and pack, compare; then its manifest entry and its row of the summary."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from .bundle import file_entry
from .errors import OptionError, UnsupportedModelError
from .formats import FormatDecision, choose_formats
from .graph_file import write_graph
from .manifest import FormatsEntry, ModelEntry, SourceEntry
from .options import DEFAULT_FORMATS
from .parity import NUM_STEPS, Parity, check_parity, parity_ids
from .passes import Plan, fuse
from .passes.check import NODES_PER_LAYER
from .rotary_tables import rotary_tables
from .trace import build_on_meta, trace
from .weights import StoredTensor, count_tensors, write_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx_ir as ir
    from transformers import PreTrainedModel

    from .draft_vocabulary import DraftVocabulary
    from .load import Checkpoint
    from .losses import Loss
    from .manifest import TapReference
    from .options import ExportOptions
    from .progress import Progress
    from .sources import WeightSource
    from .tokenizer import TokenizerInfo


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
    formats: tuple[FormatDecision, ...]
    num_logits: int
    vocab_size: int
    logit_coverage: float | None  # share of the text's tokens that a draft's trimmed head scores
    parity: Parity | None
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model whose graph and weights files have been written."""

    checkpoint: Checkpoint
    graph: ir.Graph
    plan: Plan
    formats: tuple[FormatDecision, ...]
    vocabulary: DraftVocabulary | None  # None: all ids
    tensors: tuple[StoredTensor, ...]
    graph_path: Path
    weights_path: Path
    max_positions: int
    source: WeightSource
    taps: tuple[int, ...]
    parity: Parity | None  # None: not compared
    losses: tuple[Loss, ...]  # of matrices that differ from the checkpoint's; empty: none, or not compared
    tap_reference: TapReference | None


def export_model(
    name: str,
    checkpoint: Checkpoint,
    tokenizer: TokenizerInfo,
    folder: Path,
    *,
    taps: tuple[int, ...] = (),
    vocabulary: DraftVocabulary | None = None,
    options: ExportOptions,
    progress: Progress,
) -> ExportedModel:
    """Writes `name`.onnx and `name`.bin into `folder`.

    taps: residual streams that the graph gives out for a head. vocabulary: the only ids that it scores.

    Raises:
        UnsupportedModelError, CheckpointError, OptionError, ParityError: see `errors`.
    """
    max_positions = _max_positions(checkpoint, options)
    progress.stage(f"trace {name}", 2)
    fused = _trace_and_fuse(
        name, checkpoint, taps=taps, vocabulary=vocabulary, options=options, advance=progress.advance
    )
    plan = fused.plan

    progress.stage(f"quantise and pack {name}", count_tensors(plan))
    tables = rotary_tables(fused.module, plan.rotary_module, max_positions)
    weights_path, graph_path = folder / f"{name}.bin", folder / f"{name}.onnx"
    tensors = write_weights(plan, fused.source, tables, weights_path, progress.advance)
    write_graph(fused.graph, plan, {weights_path.name: tensors}, graph_path)

    exported = ExportedModel(
        checkpoint=checkpoint,
        graph=fused.graph.graph,
        plan=plan,
        formats=fused.formats,
        vocabulary=vocabulary,
        tensors=tensors,
        graph_path=graph_path,
        weights_path=weights_path,
        max_positions=max_positions,
        source=fused.source,
        taps=taps,
        parity=None,
        losses=(),
        tap_reference=None,
    )
    if not options.parity:
        return exported
    progress.stage(f"compare {name} with torch", NUM_STEPS)
    return _compared(exported, tokenizer, options, progress)


@dataclass(frozen=True, slots=True)
class _Fused:
    """A graph without weights, and where these come from."""

    module: PreTrainedModel  # on the meta device
    source: WeightSource
    formats: tuple[FormatDecision, ...]
    graph: ir.Model
    plan: Plan


def _trace_and_fuse(
    name: str,
    checkpoint: Checkpoint,
    *,
    taps: tuple[int, ...],
    vocabulary: DraftVocabulary | None,
    options: ExportOptions,
    advance: Callable[[], None],
) -> _Fused:
    module = build_on_meta(checkpoint.config)
    source = checkpoint.source(module)
    formats = choose_formats(getattr(options, name), DEFAULT_FORMATS[name], module, source)
    graph = trace(module)
    advance()
    plan = fuse(
        graph,
        formats,
        options.cache_dtype,
        int(checkpoint.config.num_hidden_layers),
        logit_ids=None if vocabulary is None else vocabulary.ids,
        taps=taps,
    )
    advance()
    return _Fused(module, source, formats.decisions(plan), graph, plan)


def _compared(
    exported: ExportedModel, tokenizer: TokenizerInfo, options: ExportOptions, progress: Progress
) -> ExportedModel:
    """With what a comparison with torch says."""
    found = check_parity(
        exported.graph_path,
        exported.weights_path,
        exported.plan,
        exported.tensors,
        config=exported.checkpoint.config,
        source=exported.source,
        ids=parity_ids(tokenizer.json_text, min(options.parity_tokens, exported.max_positions)),
        cache_dtype=options.cache_dtype,
        taps=exported.taps,
        reread=exported.checkpoint.second_reading(),
        advance=progress.advance,
    )
    return replace(exported, parity=found.parity, losses=found.losses, tap_reference=found.tap_reference)


def model_entry(exported: ExportedModel, options: ExportOptions) -> ModelEntry:
    """The model's part of the manifest; every dimension is read off the exported graph.

    Raises:
        UnsupportedModelError: layers with different numbers or sizes of heads.
    """
    checkpoint, plan, nodes = exported.checkpoint, exported.plan, list(exported.graph)
    vocabulary = exported.vocabulary
    attentions = [node.attributes for node in nodes if node.op_type == "PagedAttention"]
    heads = {name: {item[name].as_int() for item in attentions} for name in ("num_heads", "num_kv_heads", "head_dim")}
    if any(len(values) > 1 for values in heads.values()):
        raise UnsupportedModelError(f"{checkpoint.id} has layers with different heads; they must all have the same")
    windows = {item["sliding_window"].as_int() for item in attentions}
    embedding, head = nodes[0].attributes, nodes[-1].attributes
    gate_up = next(weight for weight in plan.weights.values() if weight.interleaved)
    used = {source for weight in plan.weights.values() for source in weight.sources}
    used |= {source for vector in plan.vectors.values() for source in vector.sources}
    return ModelEntry(
        graph=file_entry(exported.graph_path),
        weights=file_entry(exported.weights_path),
        tensors=exported.tensors,
        architecture=str(checkpoint.config.model_type),
        num_layers=len(attentions),
        hidden_size=embedding["num_columns"].as_int(),
        intermediate_size=gate_up.out_features // 2,
        num_heads=heads["num_heads"].pop(),
        num_kv_heads=heads["num_kv_heads"].pop(),
        head_dim=heads["head_dim"].pop(),
        vocab_size=embedding["num_rows"].as_int(),
        num_logits=head["out_features"].as_int(),
        logit_ids=None if vocabulary is None or vocabulary.is_prefix else vocabulary.ids,
        max_positions=exported.max_positions,
        sliding_window=windows.pop() if len(windows) == 1 else 0,  # layers that differ keep every token
        cache_dtype=options.cache_dtype,
        formats=FormatsEntry(_main_format(plan), embedding["format"].as_string(), head["format"].as_string()),
        mixture=_mixture(plan),
        parameters=sum(math.prod(plan.shape(name)) for name in used),
        source=SourceEntry(checkpoint.id, checkpoint.sha256, checkpoint.licence),
        parity=asdict(exported.parity) if exported.parity is not None else {},
        taps=exported.taps,
        tap_reference=exported.tap_reference,
    )


def _mixture(plan: Plan) -> dict[str, float]:
    """Share of the weights of linear layers, the output layer aside, that each format has; the largest first."""
    sizes: Counter[str] = Counter()
    for name, weight in plan.weights.items():
        if name not in ("embedding", "lm_head"):
            sizes[weight.format] += weight.out_features * weight.in_features
    return {name: round(count / sizes.total(), 4) for name, count in sizes.most_common()}


def _main_format(plan: Plan) -> str:
    return next(iter(_mixture(plan)))


def model_summary(name: str, exported: ExportedModel, entry: ModelEntry) -> ModelSummary:
    """The model's row of the summary table."""
    weights = exported.plan.weights
    matrix_bytes = sum(tensor.bytes for tensor in exported.tensors if tensor.name in weights)
    return ModelSummary(
        name=name,
        source=entry.source.id,
        architecture=entry.architecture,
        parameters=entry.parameters,
        bytes=entry.weights.bytes,
        bits_per_weight=8 * matrix_bytes / sum(weight.out_features * weight.in_features for weight in weights.values()),
        num_layers=entry.num_layers,
        num_nodes=len(exported.graph),
        nodes_per_layer=NODES_PER_LAYER,
        formats=exported.formats,
        num_logits=entry.num_logits,
        vocab_size=entry.vocab_size,
        logit_coverage=exported.vocabulary.coverage if exported.vocabulary is not None else None,
        parity=exported.parity,
        losses=exported.losses,
    )


def _max_positions(checkpoint: Checkpoint, options: ExportOptions) -> int:
    limit = int(checkpoint.config.max_position_embeddings)
    if options.max_positions is not None and options.max_positions > limit:
        raise OptionError(f"max_positions is {options.max_positions}; {checkpoint.id} was made for at most {limit}")
    return options.max_positions or limit
