"""Makes a head in the bundle that is being written: its graphs and weights in a format, and how often it is right."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .bundle import file_entry
from .draft_speed import pass_bytes, target_bytes, trial
from .draft_trials import guesses_of_head, open_bundle
from .errors import UnsupportedModelError
from .graph_file import write_graph
from .head_sharing import shared_tensors
from .heads import CacheOptions, HeadCheckpoint, TargetParts, build_head
from .manifest import HeadCacheEntry, HeadEntry
from .manifest_file import write_manifest
from .options import DEFAULT_HEAD_FORMAT, PARTS, FormatChoice
from .passes.norm_prologue import NORM_WEIGHT
from .weights import write_weights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pilotfish.runtime.manifest import DraftTrial

    from .begun_bundle import BegunBundle
    from .draft_speed import Agreements
    from .draft_vocabulary import DraftVocabulary
    from .heads import HeadModel
    from .manifest import FileEntry
    from .model_export import ExportedModel
    from .passes import Vector
    from .progress import Progress
    from .weights_file import StoredTensor

_CHAIN = 3  # tokens that a round drafts where a head is tried; shorter and longer ones promise nearly as much
_PINS = "--head-format and --head-vocab (head_format=, head_vocab=)"


@dataclass(frozen=True, slots=True)
class WrittenHead:
    """A head whose files have been written, and which of its tensors are in the target's."""

    model: HeadModel
    target: TargetParts
    format: str
    weights_path: Path
    own: tuple[StoredTensor, ...]
    shared: tuple[StoredTensor, ...]  # with the head's names
    shared_names: dict[str, str]  # of the head -> of the target
    graphs: dict[str, FileEntry]


@dataclass(frozen=True, slots=True)
class HeadMaker:
    """Makes the head of a bundle."""

    checkpoint: HeadCheckpoint  # without what the target has too
    parts: TargetParts
    bundle: BegunBundle
    knows_fewer_ids: bool = False

    @property
    def progress(self) -> Progress:
        """The bundle's."""
        return self.bundle.progress

    @property
    def id(self) -> str:
        """The checkpoint's."""
        return self.checkpoint.id

    def write(self, formats: FormatChoice, vocabulary: DraftVocabulary | None) -> WrittenHead:
        """Writes head.bin and one head.{role}.onnx a graph, in the place of those that were there."""
        bundle, target = self.bundle, self.bundle.target
        parts = replace(self.parts, lm_head_format=formats.lm_head or self.parts.lm_head_format)
        format_name = formats.linear or DEFAULT_HEAD_FORMAT
        cache = CacheOptions(target.max_positions, bundle.options.cache_dtype)
        logit_ids = None if vocabulary is None else vocabulary.ids
        head = build_head(self.checkpoint, parts, format_name, cache, logit_ids=logit_ids)
        plan, weights_path = head.plan, bundle.folder / "head.bin"
        self.progress.stage("quantise and pack head", len(plan.weights) + len(plan.vectors) + len(head.tables))
        found = shared_tensors(head, target)
        own = write_weights(plan, head.source, head.tables, weights_path, self.progress, elsewhere=found)
        shared = tuple(replace(tensor, name=name) for name, tensor in found.items())
        graphs = {}
        for role, (model, graph_plan) in head.graphs.items():
            path = bundle.folder / f"head.{role}.onnx"
            files = {weights_path.name: own, target.weights_path.name: shared}
            used = {file: [item for item in stored if item.name in graph_plan.values] for file, stored in files.items()}
            write_graph(model, graph_plan, used, path)
            graphs[role] = file_entry(path)
        names = {name: tensor.name for name, tensor in found.items()}
        return WrittenHead(head, parts, format_name, weights_path, own, shared, names, graphs)

    def measure(self, written: WrittenHead, vocabularies: Sequence[DraftVocabulary | None]) -> list[Agreements]:
        """What the head guesses of the answers that it and the target generate."""
        bundle = self.bundle
        entry = self.entry(written, vocabularies[-1])
        write_manifest(bundle.folder, bundle.tokenizer, {"target": bundle.target_entry}, entry)
        chain = min(_CHAIN, written.model.num_predictions or _CHAIN)
        self.progress.stage("try head", 1)
        with open_bundle(bundle.folder, bundle.target_entry.max_positions, "head", _PINS) as engine:
            found = guesses_of_head(engine, chain, vocabularies, self.progress)
        return [{chain: accepted} for accepted in found]

    def trial(
        self,
        written: WrittenHead,
        formats: FormatChoice,
        vocabulary: DraftVocabulary | None,
        guesses: Agreements,
    ) -> DraftTrial:
        """What it promises to have the head's matrices in these formats, as it has them where nothing is said."""
        model = written.model
        scored = model.num_logits if vocabulary is None else len(vocabulary.ids)
        passes = {
            role: pass_bytes(graph.graph, model.plan.weights, formats, scored) / target_bytes(self.bundle.target)
            for role, (graph, _) in model.graphs.items()
        }
        stored = {weight.part: weight.format for weight in model.plan.weights.values()}
        linear, embedding, lm_head = (getattr(formats, part) or stored.get(part, written.format) for part in PARTS)

        def cost(chain: int) -> float:
            return sum(_num_runs(role, chain) * each for role, each in passes.items())

        return trial((linear, embedding, lm_head), scored, cost, guesses)

    def entry(self, written: WrittenHead, vocabulary: DraftVocabulary | None) -> HeadEntry:
        """The head's part of the manifest."""
        model, tensors, cache = written.model, self.checkpoint.tensors, None
        if model.cache is not None:
            names = ("num_heads", "num_kv_heads", "head_dim", "max_positions")
            shape = {name: getattr(model.cache, name) for name in names}
            cache = HeadCacheEntry(**shape, cache_dtype=self.bundle.options.cache_dtype)
        is_prefix = vocabulary is not None and vocabulary.is_prefix
        return HeadEntry(
            kind=model.kind,
            graphs=written.graphs,
            weights=file_entry(written.weights_path),
            tensors=written.own,
            taps=model.taps,
            num_predictions=model.num_predictions,
            state_size=model.state_size,
            num_logits=model.num_logits,
            logit_ids=None if is_prefix else model.logit_ids,
            cache=cache,
            format=written.format,
            parameters=sum(math.prod(model.source.shape(name)) for name in tensors if name not in ("d2t", "t2d")),
            source=self.checkpoint.id,
            shared=written.shared_names,
        )


def _num_runs(role: str, chain: int) -> int:
    """How often a graph runs in a round that drafts a chain."""
    if role == "step":
        return chain
    name, _, stage = role.partition(".")
    return int(name != "stage" or int(stage) < chain)


def target_parts(target: ExportedModel, tokenizer_size: int) -> TargetParts:
    """Names and sizes as the target's exported graph has them.

    Raises:
        UnsupportedModelError: a target whose embedding or output layer no head can share.
    """
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
        lm_head_format=lm_head.format,
    )


def _is_plain(norm: Vector, target: ExportedModel) -> bool:
    embeddings = [node for node in target.graph if node.op_type == "Embedding"]
    scales = {node.attributes["scale"].as_float() for node in embeddings}
    return norm.is_plain and norm.sources[0] in target.plan.parameters and len(embeddings) == 1 and scales == {1.0}
