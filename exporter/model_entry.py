"""A model's part of the manifest: every dimension is read off the exported graph and its plan."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from .bundle import file_entry
from .errors import UnsupportedModelError
from .manifest import CacheEntry, FormatsEntry, LoweredEntry, ModelEntry, SourceEntry
from .passes.check import FUSED_NODES, nodes_per_layer, operators_of_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from .model_export import ExportedModel
    from .options import ExportOptions
    from .passes import Plan


def model_entry(exported: ExportedModel, options: ExportOptions) -> ModelEntry:
    """The model's part of the manifest; every dimension is read off the exported graph.

    Raises:
        UnsupportedModelError: layers with different numbers of heads.
    """
    checkpoint, plan, nodes = exported.checkpoint, exported.plan, list(exported.graph)
    vocabulary = exported.vocabulary
    attentions = [node.attributes for node in nodes if node.op_type == "PagedAttention"]
    heads = {name: {item[name].as_int() for item in attentions} for name in ("num_heads", "num_kv_heads", "head_dim")}
    if len(heads["num_heads"]) > 1:
        raise UnsupportedModelError(f"{checkpoint.id} has layers with different numbers of heads; one is supported")
    windows = {item["sliding_window"].as_int() for item in attentions}
    embedding = plan.weights["embedding"]
    head = plan.weights.get("lm_head", embedding)
    used = {source for weight in plan.weights.values() for source in weight.sources}
    used |= {source for vector in plan.vectors.values() for source in vector.sources if source in plan.parameters}
    return ModelEntry(
        graph=file_entry(exported.graph_path),
        weights=file_entry(exported.weights_path),
        tensors=exported.tensors,
        architecture=str(checkpoint.config.model_type),
        num_layers=len(attentions),
        hidden_size=embedding.in_features,
        intermediate_size=_intermediate_size(plan),
        num_heads=heads["num_heads"].pop(),
        num_kv_heads=max(heads["num_kv_heads"]),
        head_dim=max(heads["head_dim"]),
        vocab_size=embedding.out_features,
        num_logits=head.out_features,
        logit_ids=None if vocabulary is None or vocabulary.is_prefix else vocabulary.ids,
        max_positions=exported.max_positions,
        sliding_window=windows.pop() if len(windows) == 1 else 0,  # layers that differ keep every token
        cache_dtype=options.cache_dtype,
        formats=FormatsEntry(_main_format(plan), embedding.format, head.format),
        mixture=_mixture(plan),
        parameters=sum(math.prod(plan.shape(name)) for name in used),
        source=SourceEntry(checkpoint.id, checkpoint.sha256, checkpoint.licence),
        parity=asdict(exported.parity) if exported.parity is not None else {},
        taps=exported.taps,
        tap_reference=exported.tap_reference,
        lowered=_lowered(exported),
        caches=_caches(attentions),
    )


def _caches(attentions: Sequence[Mapping[str, ir.Attr]]) -> tuple[CacheEntry, ...] | None:
    """Those of layers that write one; None: every layer does, and all have one shape."""
    writing = [item for item in attentions if "shared_kv" not in item]
    caches = tuple(CacheEntry(item["num_kv_heads"].as_int(), item["head_dim"].as_int()) for item in writing)
    return None if len(caches) == len(attentions) and len(set(caches)) == 1 else caches


def _lowered(exported: ExportedModel) -> LoweredEntry | None:
    operators, num_nodes = tuple(operators_of_runtime(exported.graph)), nodes_per_layer(exported.graph)
    if not operators and not exported.plan.unfused and num_nodes == FUSED_NODES:
        return None
    return LoweredEntry(num_nodes, operators, tuple(exported.plan.reasons()))


def _intermediate_size(plan: Plan) -> int:
    """The widest that a layer's MLP is: half of its gated projection, or its whole first one."""
    gated = [weight.out_features // 2 for weight in plan.weights.values() if weight.interleaved]
    others = [
        weight.out_features
        for weight in plan.weights.values()
        if weight.part == "linear" and not weight.name.endswith(".qkv")
    ]
    return max(gated or others)


def _mixture(plan: Plan) -> dict[str, float]:
    """Share of the weights of linear layers, neither looked up nor of the output layer, that each format has."""
    sizes: Counter[str] = Counter()
    for weight in plan.weights.values():
        if weight.part == "linear":
            sizes[weight.format] += weight.out_features * weight.in_features
    return {name: round(count / sizes.total(), 4) for name, count in sizes.most_common()}


def _main_format(plan: Plan) -> str:
    return next(iter(_mixture(plan)))
