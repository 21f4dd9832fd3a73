"""A head: build its graphs on the exported target, quantise and pack, and its manifest entry."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from .bundle import file_entry
from .draft_vocabulary import DraftVocabulary, choose_ids
from .graph_file import write_graph
from .head_parity import NUM_STEPS, check_head_parity
from .head_sharing import shared_tensors, without_copies
from .heads import HeadCheckpoint, TargetParts, build_head
from .manifest import HeadCacheEntry, HeadEntry
from .options import DEFAULT_HEAD_FORMAT
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
    shared_bytes: int  # of the target's file that it reads beside them
    format: str
    taps: tuple[int, ...]
    num_graphs: int
    num_logits: int
    vocab_size: int
    logit_coverage: float | None  # share of the text's tokens that a trimmed output layer scores
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
    parts = _target_parts(target, tokenizer.size, options.head_format)
    checkpoint = without_copies(checkpoint, parts)
    vocabulary = choose_ids(
        "head_vocab", options.head_vocab, options.draft_vocab_text, tokenizer, limit=tokenizer.size, owner=parts.id
    )
    head = build_head(
        checkpoint,
        parts,
        options.head_format or DEFAULT_HEAD_FORMAT,
        max_positions=target.max_positions,
        cache_dtype=options.cache_dtype,
        logit_ids=None if vocabulary is None else vocabulary.ids,
    )
    progress.advance()
    plan = head.plan
    progress.stage("quantise and pack head", len(plan.weights) + len(plan.vectors) + len(head.tables))
    weights_path = folder / "head.bin"
    shared = shared_tensors(head, target)
    tensors = write_weights(plan, head.source, head.tables, weights_path, progress.advance, elsewhere=shared)
    borrowed = tuple(replace(tensor, name=name) for name, tensor in shared.items())
    graphs = {}
    for role, (model, graph_plan) in head.graphs.items():
        path = folder / f"head.{role}.onnx"
        files = {weights_path.name: tensors, target.weights_path.name: borrowed}
        used = {file: [item for item in stored if item.name in graph_plan.values] for file, stored in files.items()}
        write_graph(model, graph_plan, used, path)
        graphs[role] = file_entry(path)
    parity = None
    if options.parity:
        progress.stage("compare head with torch", NUM_STEPS)
        parity = check_head_parity(
            head,
            checkpoint,
            parts,
            target,
            {weights_path: tensors, target.weights_path: borrowed},
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
        logit_ids=None if vocabulary is not None and vocabulary.is_prefix else head.logit_ids,
        cache=None
        if cache is None
        else HeadCacheEntry(
            num_heads=cache.num_heads,
            num_kv_heads=cache.num_kv_heads,
            head_dim=cache.head_dim,
            max_positions=cache.max_positions,
            cache_dtype=options.cache_dtype,
        ),
        format=options.head_format or DEFAULT_HEAD_FORMAT,
        parameters=parameters,
        source=checkpoint.id,
        parity={} if parity is None else asdict(parity),
        shared={name: tensor.name for name, tensor in shared.items()},
    )
    return entry, _summary(entry, sum(tensor.bytes for tensor in borrowed), parts.vocab_size, vocabulary, parity)


def _summary(
    entry: HeadEntry, shared_bytes: int, vocab_size: int, vocabulary: DraftVocabulary | None, parity: Parity | None
) -> HeadSummary:
    return HeadSummary(
        kind=entry.kind,
        source=entry.source,
        parameters=entry.parameters,
        bytes=entry.weights.bytes,
        shared_bytes=shared_bytes,
        format=entry.format,
        taps=entry.taps,
        num_graphs=len(entry.graphs),
        num_logits=entry.num_logits,
        vocab_size=vocab_size,
        logit_coverage=None if vocabulary is None else vocabulary.coverage,
        parity=parity,
    )


def _target_parts(target: ExportedModel, tokenizer_size: int, head_format: str | None) -> TargetParts:
    """Names and sizes as the target's exported graph has them."""
    plan = target.plan
    embedding = plan.weights["embedding"]
    lm_head = plan.weights.get("lm_head", embedding)
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
        lm_head=lm_head.sources[0],
        source=target.source,
        embedding_format=embedding.format,
        lm_head_format=head_format or lm_head.format,
    )
