"""The MLP speculator: stage i mixes the state before it with the embedding of the token that was chosen last.

Wertheimer et al. 2024, "Accelerating production LLMs with combined token/embedding speculators": stages see the
target's state after its final norm and, unlike Medusa's heads, each other's tokens. With
    state_weight = 2^(-1/(2 n)), token_weight = sqrt((1 - state_weight^2) inner_dim / 2), n = n_predict
stage i computes state = gelu(norm_i(proj_i(state) + token_weight / state_weight * emb_i(token))) and head_i(state).
norm_i divides by the root mean square, scales and shifts; with scale_input the first state is divided by its root mean
square and by sqrt(2) before all that.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from pilotfish.exporter.errors import CheckpointError

from .config_sizes import columns, compared, rows
from .graph_builder import GraphBuilder, num_scored
from .head_kind import HeadKind
from .head_model import HeadModel
from .target_state import check_streams, read_state, taps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir
    from torch import Tensor

    from pilotfish.exporter.passes import Plan

    from .checkpoint import HeadCheckpoint
    from .config_sizes import Size
    from .head_kind import Array, HeadRun
    from .head_model import CacheOptions
    from .tensor_source import TargetParts, TensorSource
    from .torch_heads import TorchHead

_EPSILON = 1e-6
_SCALE = "input_scale"


def _build(checkpoint: HeadCheckpoint, source: TensorSource, plan: Plan, _cache: CacheOptions) -> HeadModel:
    """Reads the ibm-fms layout: emb.{i}, proj.{i}, head.{i} and ln.{i}, after "speculator." or not.

    Raises:
        CheckpointError, UnsupportedModelError: another size, a missing tensor, or another variant.
    """
    target = source.target
    sizes = _sizes(checkpoint, target)
    names = [_stage_names(checkpoint, stage) for stage in range(sizes.num_stages)]
    _check_tensors(checkpoint, names, sizes)
    source.tensors[_SCALE] = torch.full((target.hidden_size,), math.sqrt(0.5))
    return HeadModel(
        kind=checkpoint.kind,
        taps=taps(checkpoint, target.num_layers),
        num_predictions=sizes.num_stages,
        state_size=sizes.inner,
        num_logits=num_scored(plan, sizes.vocab),
        logit_ids=plan.logit_ids,
        cache=None,
        graphs={
            f"stage.{stage}": _stage(stage, parts, GraphBuilder(f"stage.{stage}", plan, source), checkpoint, sizes)
            for stage, parts in enumerate(names)
        },
        plan=plan,
        source=source,
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    num_stages: int
    inner: int  # of a stage's state
    hidden: int  # of the target's
    vocab: int


def _sizes(checkpoint: HeadCheckpoint, target: TargetParts) -> _Sizes:
    emb_dim, vocab = int(checkpoint.setting("emb_dim", target.hidden_size)), int(checkpoint.setting("vocab_size"))
    if emb_dim != target.hidden_size or vocab < target.tokenizer_size:
        raise CheckpointError(
            f"{checkpoint.id} is for a hidden size of {emb_dim} and {vocab} ids; {target.id} has {target.hidden_size} "
            f"and the {target.tokenizer_size} of its tokenizer"
        )
    inner = int(checkpoint.setting("inner_dim", 0)) or target.hidden_size
    return _Sizes(int(checkpoint.setting("n_predict")), inner, emb_dim, vocab)


def _check_tensors(checkpoint: HeadCheckpoint, names: list[dict[str, str]], sizes: _Sizes) -> None:
    """All of every stage, in its shape, and nothing else but what tied stages repeat."""
    for stage, parts in enumerate(names):
        checkpoint.tensor(parts["emb"], sizes.vocab, sizes.inner)
        checkpoint.tensor(parts["proj"], sizes.inner, sizes.inner if stage else sizes.hidden)
        checkpoint.tensor(parts["head"], sizes.vocab, sizes.inner)
        checkpoint.tensor(parts["scale"], sizes.inner)
        checkpoint.tensor(parts["shift"], sizes.inner)
    known = check_streams(checkpoint, sizes.hidden) | {name for parts in names for name in parts.values()}
    if checkpoint.config.get("tie_weights"):
        known |= {f"{part}.{stage}.{kind}" for stage in range(1, len(names)) for part, kind in _PARTS.values()}
    checkpoint.refuse_others(known)


_PARTS = {
    "emb": ("emb", "weight"),
    "proj": ("proj", "weight"),
    "head": ("head", "weight"),
    "scale": ("ln", "weight"),
    "shift": ("ln", "bias"),
}


def _stage_names(checkpoint: HeadCheckpoint, stage: int) -> dict[str, str]:
    """Tensor of each part; tied stages share all but the first projection, whose input may have another size."""
    tied = bool(checkpoint.config.get("tie_weights"))
    return {
        part: f"{name}.{min(stage, 1 if part == 'proj' else 0) if tied else stage}.{kind}"
        for part, (name, kind) in _PARTS.items()
    }


def _stage_weights(num_stages: int, inner: int) -> tuple[float, float]:
    """What state and token are weighted by."""
    state_weight = 0.5 ** (0.5 / num_stages)
    return state_weight, math.sqrt((1 - state_weight**2) * inner / 2)


def _stage(
    stage: int, parts: dict[str, str], graph: GraphBuilder, checkpoint: HeadCheckpoint, sizes: _Sizes
) -> tuple[ir.Model, Plan]:
    ids = graph.input("input_ids", "int32", ("num_rows",))
    if stage:
        state = graph.input("state", "f32", ("num_rows", sizes.inner))
    else:
        state = read_state(graph, checkpoint)
        if checkpoint.config.get("scale_input"):
            state = graph.rms_norm(state, _SCALE, _SCALE, _EPSILON)
    state_weight, token_weight = _stage_weights(sizes.num_stages, sizes.inner)
    token = graph.embedding(ids, parts["emb"].removesuffix(".weight"), parts["emb"], token_weight / state_weight)
    mixed = graph.linear(state, parts["proj"].removesuffix(".weight"), [parts["proj"]], residual=token)
    shift = graph.vector(parts["shift"], [parts["shift"]])
    result = graph.rms_norm(mixed, parts["scale"], parts["scale"], _EPSILON, bias=shift, activation="gelu")
    logits = graph.linear(result, f"lm_head.{parts['head']}", [parts["head"]])
    graph.output(logits, "logits", ("num_rows", num_scored(graph.plan, sizes.vocab)))
    graph.output(result, "next_state", ("num_rows", sizes.inner))
    return graph.finish(), graph.plan


def _config_sizes(checkpoint: HeadCheckpoint) -> Iterator[Size]:
    yield from rows(checkpoint, "vocab_size", "emb.0.weight")
    if checkpoint.config.get("inner_dim"):  # 0: the hidden size
        yield from rows(checkpoint, "inner_dim", "proj.0.weight")
    yield from columns(checkpoint, "emb_dim", "proj.0.weight")
    stages = [int(match[1]) for name in checkpoint.tensors if (match := re.fullmatch(r"emb\.(\d+)\.weight", name))]
    if not checkpoint.config.get("tie_weights"):  # tied ones may hold the first alone
        yield from compared(checkpoint, "n_predict", f"emb.{max(stages)}.weight", max(stages) + 1)


def _run(graphs: HeadRun, ids: list[int]) -> Array:
    num_rows = len(ids) - graphs.num_predictions
    state = {name: stream[:num_rows] for name, stream in graphs.streams.items()}
    results = []
    for stage in range(graphs.num_predictions):
        tokens = np.array(ids[1 + stage : 1 + stage + num_rows], dtype=np.int32)
        inputs = {**state, "input_ids": tokens}
        logits, next_state = graphs.rows(f"stage.{stage}", inputs, ["logits", "next_state"])
        results.append(logits)
        state = {"state": next_state}
    return np.concatenate(results)


def _torch_logits(head: TorchHead, streams: Mapping[int, Tensor], ids: Tensor) -> Tensor:
    checkpoint, state = head.checkpoint, head.state(streams)
    num_stages = int(checkpoint.setting("n_predict"))
    if checkpoint.config.get("scale_input"):
        state = functional.rms_norm(state, state.shape[-1:], eps=_EPSILON) * math.sqrt(0.5)
    num_rows = len(ids) - num_stages
    state, results = state[:num_rows], []
    for stage in range(num_stages):
        parts = _stage_names(checkpoint, stage)
        token = head.rows(parts["emb"], ids[1 + stage : 1 + stage + num_rows])
        state_weight, token_weight = _stage_weights(num_stages, token.shape[-1])
        mixed = head.linear(state, parts["proj"]) + token_weight / state_weight * token
        scaled = head.rms_norm(mixed, parts["scale"], _EPSILON)
        state = functional.gelu(scaled + head.tensor(parts["shift"]))
        results.append(head.linear(state, parts["head"]))
    return torch.cat(results)


KIND = HeadKind(
    name="mlp_speculator",
    title="MLP speculators",
    tensor=re.compile(r"emb\.0\.weight"),
    prefix="speculator.",
    files=(),
    words=("mlpspeculator", "mlp_speculator"),
    counts=("n_predict", "emb_dim"),
    counts_from_zero=("inner_dim",),
    sizes=_config_sizes,
    taps=taps,
    build=_build,
    run=_run,
    torch_logits=_torch_logits,
)
