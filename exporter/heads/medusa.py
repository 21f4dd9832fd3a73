"""Medusa heads: every head guesses a further token from the target's last hidden state alone.

Cai et al. 2024, "Medusa: Simple LLM inference acceleration framework with multiple decoding heads", section 3.1: head k
is some residual blocks x + silu(W x + b) and an output layer over the state after the target's final norm; with the
target's own prediction of token t + 1, head k (from 0) predicts token t + 2 + k.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from pilotfish.exporter.errors import CheckpointError

from .config_sizes import compared
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


def _build(checkpoint: HeadCheckpoint, source: TensorSource, plan: Plan, _cache: CacheOptions) -> HeadModel:
    """Reads the FasterDecoding layout: {head}.{block}.linear.weight and .bias, then {head}.{blocks}.weight.

    A head without an output layer uses the target's, which is read once for all of them.

    Raises:
        CheckpointError, UnsupportedModelError: another size, a missing tensor, or another variant.
    """
    num_heads, num_blocks = _check_tensors(checkpoint, source.target)
    target = source.target
    graph = GraphBuilder("medusa", plan, source)
    state = read_state(graph, checkpoint)
    states = {head: _blocks(graph, state, head, num_blocks) for head in range(num_heads)}
    own = {
        head: _output_layer(graph, checkpoint, target, x, output)
        for head, x in states.items()
        if (output := _output_name(head, num_blocks)) in checkpoint.tensors
    }
    shared = {head: x for head, x in states.items() if head not in own}
    logits = own | _shared_output(graph, target, shared)
    for head, (value, size) in sorted(logits.items()):
        graph.output(value, f"logits.{head}", ("num_rows", num_scored(plan, size)))
    return HeadModel(
        kind=checkpoint.kind,
        taps=taps(checkpoint, target.num_layers),
        num_predictions=num_heads,
        state_size=target.hidden_size,
        num_logits=num_scored(plan, _check_sizes(checkpoint, target, {size for _, size in logits.values()})),
        logit_ids=plan.logit_ids,
        cache=None,
        graphs={"heads": (graph.finish(), graph.plan)},
        plan=plan,
        source=source,
    )


def _check_tensors(checkpoint: HeadCheckpoint, target: TargetParts) -> tuple[int, int]:
    """Numbers of heads and of each head's blocks, which have all their tensors and nothing else."""
    num_heads, num_blocks = (int(checkpoint.setting(f"medusa_num_{part}")) for part in ("heads", "layers"))
    head_of = {name: int(found[1]) for name in checkpoint.tensors if (found := re.match(r"(\d+)\.", name))}
    stored = 1 + max(head_of.values())
    if not 1 <= num_heads <= stored:
        raise CheckpointError(f"{checkpoint.id}: medusa_num_heads is {num_heads}, the weights hold {stored} heads")
    known = check_streams(checkpoint, target.hidden_size) | {
        _output_name(head, num_blocks) for head in range(num_heads)
    }
    for head in range(num_heads):
        for block in range(num_blocks):
            weight, bias = _block_names(head, block)
            checkpoint.tensor(weight, target.hidden_size, target.hidden_size)
            checkpoint.tensor(bias, target.hidden_size)
            known |= {weight, bias}
    unused = {name for name, head in head_of.items() if head >= num_heads}
    checkpoint.refuse_others(known | unused)
    return num_heads, num_blocks


def _check_sizes(checkpoint: HeadCheckpoint, target: TargetParts, sizes: set[int]) -> int:
    """How many ids all heads score."""
    if len(sizes) > 1 or min(sizes) < target.tokenizer_size:
        raise CheckpointError(
            f"{checkpoint.id} scores {' or '.join(map(str, sorted(sizes)))} ids; {target.id} has the "
            f"{target.tokenizer_size} of its tokenizer"
        )
    return min(sizes)


def _block_names(head: int, block: int) -> tuple[str, str]:
    return f"{head}.{block}.linear.weight", f"{head}.{block}.linear.bias"


def _output_name(head: int, num_blocks: int) -> str:
    return f"{head}.{num_blocks}.weight"


def _blocks(graph: GraphBuilder, state: ir.Value, head: int, num_blocks: int) -> ir.Value:
    x = state
    for block in range(num_blocks):
        weight, bias = _block_names(head, block)
        x = graph.silu_and_add(graph.linear(x, f"{head}.{block}", [weight], bias=[bias]), x)
    return x


def _output_layer(
    graph: GraphBuilder, checkpoint: HeadCheckpoint, target: TargetParts, x: ir.Value, name: str
) -> tuple[ir.Value, int]:
    """Logits and their number."""
    num_rows = int(checkpoint.tensors[name].shape[0])
    checkpoint.tensor(name, num_rows, target.hidden_size)
    return graph.linear(x, f"lm_head.{name.split('.', maxsplit=1)[0]}", [name]), num_rows


def _shared_output(
    graph: GraphBuilder, target: TargetParts, states: dict[int, ir.Value]
) -> dict[int, tuple[ir.Value, int]]:
    """Logits of the target's output layer by head: the states are rows of one product."""
    if not states:
        return {}
    rows = list(states.values())
    logits = graph.linear(graph.join_rows(rows), "lm_head", [target.lm_head])
    parts = [logits] if len(rows) == 1 else graph.split_rows(logits, len(rows))
    return {head: (part, target.vocab_size) for head, part in zip(states, parts, strict=True)}


def _config_sizes(checkpoint: HeadCheckpoint) -> Iterator[Size]:
    blocks = re.compile(r"(\d+)\.(\d+)\.linear\.weight")
    found = [(match, name) for name in checkpoint.tensors if (match := blocks.fullmatch(name))]
    last = max(found, key=lambda item: (int(item[0][1]), int(item[0][2])))
    for key, group in (("medusa_num_heads", 1), ("medusa_num_layers", 2)):
        count = max(int(match[group]) for match, _ in found) + 1
        yield from compared(checkpoint, key, last[1], count)
    hidden = checkpoint.tensors[last[1]].shape[0]
    yield from compared(checkpoint, "hidden_size", last[1], int(hidden))


def _run(graphs: HeadRun, _ids: list[int]) -> Array:
    names = [f"logits.{index}" for index in range(graphs.num_predictions)]
    return np.concatenate(graphs.rows("heads", graphs.streams, names))


def _torch_logits(head: TorchHead, streams: Mapping[int, Tensor], _ids: Tensor) -> Tensor:
    checkpoint, state = head.checkpoint, head.state(streams)
    num_heads, num_blocks = (int(checkpoint.setting(f"medusa_num_{part}")) for part in ("heads", "layers"))
    results = []
    for number in range(num_heads):
        x = state
        for block in range(num_blocks):
            x = x + functional.silu(head.linear(x, *_block_names(number, block)))
        output = _output_name(number, num_blocks)
        own = output in checkpoint.tensors
        results.append(head.linear(x, output) if own else head.output(x, head.target.lm_head))
    return torch.cat(results)


KIND = HeadKind(
    name="medusa",
    title="Medusa heads",
    tensor=re.compile(r"\d+\.0\.linear\.weight"),
    prefix="medusa_head.",
    files=("medusa_lm_head.safetensors", "medusa_lm_head.pt"),
    words=("medusa",),
    counts=("medusa_num_heads",),
    counts_from_zero=("medusa_num_layers",),
    sizes=_config_sizes,
    taps=taps,
    build=_build,
    run=_run,
    torch_logits=_torch_logits,
)
