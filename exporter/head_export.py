"""A head: build its graphs on the exported target, quantise and pack, and its manifest entry."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from .bundle import file_entry
from .graph_file import write_graph
from .head_parity import NUM_STEPS, check_head_parity
from .heads import HeadCheckpoint, TargetParts, build_head
from .manifest import HeadCacheEntry, HeadEntry
from .parity import parity_ids
from .weights import write_weights

if TYPE_CHECKING:
    from pathlib import Path

    from .model_export import ExportedModel
    from .options import ExportOptions
    from .parity import Parity
    from .progress import Progress
    from .tokenizer import TokenizerInfo


@dataclass(frozen=True, slots=True)
class HeadSummary:
    """The head's lines of the summary."""

    kind: str
    source: str
    parameters: int
    bytes: int  # of the weights file
    format: str
    taps: tuple[int, ...]
    num_graphs: int
    parity: Parity | None


def export_head(
    checkpoint: HeadCheckpoint,
    target: ExportedModel,
    tokenizer: TokenizerInfo,
    folder: Path,
    *,
    options: ExportOptions,
    progress: Progress,
) -> tuple[HeadEntry, HeadSummary]:
    """Writes head.bin and one head.{role}.onnx a graph into `folder`.

    Raises:
        CheckpointError, UnsupportedModelError: a head that does not fit the target, or of another variant.
        ParityError: its graphs differ from torch.
    """
    progress.stage("build head", 1)
    parts = _target_parts(target, tokenizer.size)
    head = build_head(
        checkpoint,
        parts,
        options.head_format,
        max_positions=target.max_positions,
        cache_dtype=options.cache_dtype,
    )
    progress.advance()
    plan = head.plan
    progress.stage("quantise and pack head", len(plan.weights) + len(plan.vectors) + len(head.tables))
    weights_path = folder / "head.bin"
    tensors = write_weights(plan, head.source, head.tables, weights_path, progress.advance)
    graphs = {}
    for role, (model, graph_plan) in head.graphs.items():
        path = folder / f"head.{role}.onnx"
        used = tuple(tensor for tensor in tensors if tensor.name in graph_plan.values)
        write_graph(model, graph_plan, used, weights_path.name, path)
        graphs[role] = file_entry(path)
    parity = None
    if options.parity:
        progress.stage("compare head with torch", NUM_STEPS)
        parity = check_head_parity(
            head,
            checkpoint,
            parts,
            target,
            tensors,
            folder=folder,
            ids=parity_ids(tokenizer.json_text, min(options.parity_tokens, target.max_positions)),
            cache_dtype=options.cache_dtype,
            advance=progress.advance,
        )
    parameters = sum(math.prod(head.source.shape(name)) for name in checkpoint.tensors if name not in ("d2t", "t2d"))
    cache = head.cache
    entry = HeadEntry(
        kind=head.kind,
        graphs=graphs,
        weights=file_entry(weights_path),
        tensors=tensors,
        taps=head.taps,
        num_predictions=head.num_predictions,
        state_size=head.state_size,
        num_logits=head.num_logits,
        logit_ids=head.logit_ids,
        cache=None
        if cache is None
        else HeadCacheEntry(
            num_heads=cache.num_heads,
            num_kv_heads=cache.num_kv_heads,
            head_dim=cache.head_dim,
            max_positions=cache.max_positions,
            cache_dtype=options.cache_dtype,
        ),
        format=options.head_format,
        parameters=parameters,
        source=checkpoint.id,
        parity={} if parity is None else asdict(parity),
    )
    summary = HeadSummary(
        head.kind, checkpoint.id, parameters, entry.weights.bytes, entry.format, head.taps, len(graphs), parity
    )
    return entry, summary


def _target_parts(target: ExportedModel, tokenizer_size: int) -> TargetParts:
    """Names and sizes as the target's exported graph has them."""
    plan = target.plan
    embedding = plan.weights["embedding"]
    head = list(target.graph)[-1]
    return TargetParts(
        id=target.checkpoint.id,
        num_layers=sum(node.op_type == "PagedAttention" for node in target.graph),
        hidden_size=embedding.in_features,
        vocab_size=embedding.out_features,
        tokenizer_size=tokenizer_size,
        final_norm=plan.vectors["final_norm"].sources[0],
        norm_epsilon=head.attributes["norm_epsilon"].as_float(),
        embedding=embedding.sources[0],
        lm_head=plan.weights.get("lm_head", embedding).sources[0],
        source=target.source,
    )
