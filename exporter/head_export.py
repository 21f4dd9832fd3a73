"""A head: build its graphs on the exported target, quantise and pack, and its manifest entry."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from .bundle import file_entry
from .draft_vocabulary import DraftVocabulary, choose_ids
from .errors import UnsupportedModelError
from .graph_file import write_graph
from .head_parity import NUM_STEPS, check_head_parity
from .head_sharing import shared_tensors, without_copies
from .heads import CacheOptions, HeadCheckpoint, TargetParts, build_head
from .manifest import HeadCacheEntry, HeadEntry
from .options import DEFAULT_HEAD_FORMAT
from .parity import parity_ids
from .passes.norm_prologue import NORM_WEIGHT
from .weights import write_weights

if TYPE_CHECKING:
    from pathlib import Path

    from .heads import HeadModel
    from .manifest import FileEntry
    from .model_export import ExportedModel
    from .options import ExportOptions
    from .parity import Parity
    from .passes import Vector
    from .progress import Progress
    from .tokenizer import TokenizerInfo
    from .weights_file import StoredTensor


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
        OptionError: a vocabulary that the target does not have.
        ParityError: its graphs differ from torch.
    """
    progress.stage("build head", 1)
    head = _build(checkpoint, target, tokenizer, options)
    progress.advance()
    files = _write_files(head.model, target, folder, progress)
    parity = None
    if options.parity:
        progress.stage("compare head with torch", NUM_STEPS)
        parity = check_head_parity(
            head.model,
            head.checkpoint,
            head.target,
            target,
            {files.weights_path: files.own, target.weights_path: files.shared},
            folder=folder,
            ids=parity_ids(tokenizer.json_text, min(options.parity_tokens, target.max_positions)),
            cache_dtype=options.cache_dtype,
            advance=progress.advance,
        )
    entry = _entry(head, files, options, parity)
    return entry, _summary(entry, head, files, parity)


@dataclass(frozen=True, slots=True)
class _Head:
    """A head's graphs, and what they were built from."""

    model: HeadModel
    checkpoint: HeadCheckpoint  # without what the target has too
    target: TargetParts
    vocabulary: DraftVocabulary | None  # the only ids that it scores


def _build(
    checkpoint: HeadCheckpoint, target: ExportedModel, tokenizer: TokenizerInfo, options: ExportOptions
) -> _Head:
    parts = _target_parts(target, tokenizer.size, options.head_format)
    checkpoint = without_copies(checkpoint, parts)
    vocabulary = choose_ids(
        "head_vocab", options.head_vocab, options.draft_vocab_text, tokenizer, limit=tokenizer.size, owner=parts.id
    )
    model = build_head(
        checkpoint,
        parts,
        options.head_format or DEFAULT_HEAD_FORMAT,
        CacheOptions(target.max_positions, options.cache_dtype),
        logit_ids=None if vocabulary is None else vocabulary.ids,
    )
    return _Head(model, checkpoint, parts, vocabulary)


@dataclass(frozen=True, slots=True)
class _Files:
    """What was written of a head, and which of its tensors are in the target's file."""

    weights_path: Path
    own: tuple[StoredTensor, ...]
    shared: tuple[StoredTensor, ...]  # with the head's names
    shared_names: dict[str, str]  # of the head -> of the target
    graphs: dict[str, FileEntry]


def _write_files(head: HeadModel, target: ExportedModel, folder: Path, progress: Progress) -> _Files:
    plan, weights_path = head.plan, folder / "head.bin"
    progress.stage("quantise and pack head", len(plan.weights) + len(plan.vectors) + len(head.tables))
    found = shared_tensors(head, target)
    own = write_weights(plan, head.source, head.tables, weights_path, progress, elsewhere=found)
    shared = tuple(replace(tensor, name=name) for name, tensor in found.items())
    graphs = {}
    for role, (model, graph_plan) in head.graphs.items():
        path = folder / f"head.{role}.onnx"
        files = {weights_path.name: own, target.weights_path.name: shared}
        used = {file: [item for item in stored if item.name in graph_plan.values] for file, stored in files.items()}
        write_graph(model, graph_plan, used, path)
        graphs[role] = file_entry(path)
    return _Files(weights_path, own, shared, {name: tensor.name for name, tensor in found.items()}, graphs)


def _entry(head: _Head, files: _Files, options: ExportOptions, parity: Parity | None) -> HeadEntry:
    model, tensors = head.model, head.checkpoint.tensors
    cache = None
    if model.cache is not None:
        names = ("num_heads", "num_kv_heads", "head_dim", "max_positions")
        cache = HeadCacheEntry(**{name: getattr(model.cache, name) for name in names}, cache_dtype=options.cache_dtype)
    is_prefix = head.vocabulary is not None and head.vocabulary.is_prefix
    return HeadEntry(
        kind=model.kind,
        graphs=files.graphs,
        weights=file_entry(files.weights_path),
        tensors=files.own,
        taps=model.taps,
        num_predictions=model.num_predictions,
        state_size=model.state_size,
        num_logits=model.num_logits,
        logit_ids=None if is_prefix else model.logit_ids,
        cache=cache,
        format=options.head_format or DEFAULT_HEAD_FORMAT,
        parameters=sum(math.prod(model.source.shape(name)) for name in tensors if name not in ("d2t", "t2d")),
        source=head.checkpoint.id,
        parity={} if parity is None else asdict(parity),
        shared=files.shared_names,
    )


def _summary(entry: HeadEntry, head: _Head, files: _Files, parity: Parity | None) -> HeadSummary:
    return HeadSummary(
        kind=entry.kind,
        source=entry.source,
        parameters=entry.parameters,
        bytes=entry.weights.bytes,
        shared_bytes=sum(tensor.bytes for tensor in files.shared),
        format=entry.format,
        taps=entry.taps,
        num_graphs=len(entry.graphs),
        num_logits=entry.num_logits,
        vocab_size=head.target.vocab_size,
        logit_coverage=None if head.vocabulary is None else head.vocabulary.coverage,
        parity=parity,
    )


def _target_parts(target: ExportedModel, tokenizer_size: int, head_format: str | None) -> TargetParts:
    """Names and sizes as the target's exported graph has them."""
    plan = target.plan
    embedding = plan.weights["embedding"]
    lm_head = plan.weights.get("lm_head", embedding)
    head = list(target.graph)[-1]
    norm = plan.vectors.get("final_norm")
    if head.op_type != "Linear" or head.inputs[NORM_WEIGHT] is None or norm is None or not _is_plain(norm, target):
        raise UnsupportedModelError(
            f"{target.checkpoint.id} ({target.checkpoint.config.model_type}) cannot have a head: heads need a target "
            "whose embedding is not multiplied and whose logits are one linear layer behind an RMSNorm with a weight"
        )
    return TargetParts(
        id=target.checkpoint.id,
        num_layers=sum(node.op_type == "PagedAttention" for node in target.graph),
        hidden_size=embedding.in_features,
        vocab_size=embedding.out_features,
        tokenizer_size=tokenizer_size,
        final_norm=norm.sources[0],
        norm_epsilon=head.attributes["norm_epsilon"].as_float(),
        embedding=embedding.sources[0],
        lm_head=lm_head.sources[0],
        source=target.source,
        embedding_format=embedding.format,
        lm_head_format=head_format or lm_head.format,
    )


def _is_plain(norm: Vector, target: ExportedModel) -> bool:
    embeddings = [node for node in target.graph if node.op_type == "Embedding"]
    scales = {node.attributes["scale"].as_float() for node in embeddings}
    return norm.is_plain and norm.sources[0] in target.plan.parameters and len(embeddings) == 1 and scales == {1.0}
