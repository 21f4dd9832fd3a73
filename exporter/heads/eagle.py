"""EAGLE heads: one decoder layer over the last token's embedding and the state before it, with a cache of its own.

EAGLE-1 and -2 (Li et al. 2024, "EAGLE: Speculative sampling requires rethinking feature uncertainty"; the second has
the same head and grows other trees): the state is the target's after its final norm, then the layer's own; a linear
layer joins both, the decoder layer has no norm before its attention, and the target's output layer scores its result.

EAGLE-3 (Li et al. 2025, "EAGLE-3: Scaling up inference acceleration of large language models via training-time test"):
the first state is three of the target's residual streams joined by a linear layer, embedding and state are normed and
attended to side by side, and an output layer of its own scores the most frequent tokens only.

Row r of a pass holds token t + 1 and the state of position t, at position t.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pilotfish.exporter import contract
from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

from .config_sizes import layer_sizes, rows
from .decoder_layer import DecoderLayer, UsedTensors, cache_shape, layer_config, layer_tables, run_layer, step_inputs
from .graph_builder import GraphBuilder
from .head_kind import HeadKind
from .head_model import HeadModel
from .speculators import NORMED_RESIDUAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir
    from torch import Tensor

    from pilotfish.exporter.passes import Plan

    from .checkpoint import HeadCheckpoint
    from .config_sizes import Size
    from .head_model import CacheOptions
    from .tensor_source import TargetParts, TensorSource
    from .torch_heads import TorchHead

TAPS = "eagle_aux_hidden_state_layer_ids"  # in config.json or its eagle_config
_NUM_TAPS = 3


def _taps(checkpoint: HeadCheckpoint, num_layers: int) -> tuple[int, ...]:
    """The stream before the final norm; of EAGLE-3 the streams into three layers, the usual ones if none are named."""
    if checkpoint.kind == "eagle":
        return (num_layers,)
    chosen = tuple(int(layer) for layer in named_taps(checkpoint) or (2, num_layers // 2, num_layers - 3))
    if len(set(chosen)) != _NUM_TAPS or not all(0 <= layer <= num_layers for layer in chosen):
        raise CheckpointError(
            f"{checkpoint.id} reads the streams into layers {', '.join(map(str, chosen))} of a target that has "
            f"{num_layers}; it needs three different ones"
        )
    return chosen


def named_taps(checkpoint: HeadCheckpoint) -> list[int]:
    """The layers that an EAGLE-3 head's configuration names, or none."""
    nested = checkpoint.config.get("eagle_config") or {}
    return nested.get(TAPS) or checkpoint.config.get(TAPS) or []


def num_own_ids(checkpoint: HeadCheckpoint) -> int | None:
    """How many ids a head scores that was trained for some of them alone; None: it scores all."""
    offsets = checkpoint.tensors.get("d2t")
    return None if offsets is None or len(offsets) >= int(checkpoint.setting("vocab_size")) else len(offsets)


def _build(checkpoint: HeadCheckpoint, source: TensorSource, plan: Plan, cache: CacheOptions) -> HeadModel:
    """Reads the published layouts: fc, layers.0 (EAGLE-1, -2) or midlayer, norm, lm_head, d2t (EAGLE-3).

    Raises:
        CheckpointError, UnsupportedModelError: another size, a missing tensor, or another variant.
    """
    if checkpoint.setting("num_hidden_layers", 1) != 1:
        raise UnsupportedModelError(
            f"{checkpoint.id} has {checkpoint.config['num_hidden_layers']} layers; EAGLE heads of one are supported"
        )
    config, target = layer_config(checkpoint), source.target
    reader = _Reader(UsedTensors(checkpoint), config, target, _taps(checkpoint, target.num_layers), plan.logit_ids)
    features = reader.features(GraphBuilder("features", plan, source))
    step = reader.step(GraphBuilder("step", plan, source), cache.dtype)
    checkpoint.refuse_others(reader.tensors.names)
    return HeadModel(
        kind=checkpoint.kind,
        taps=reader.taps,
        num_predictions=0,
        state_size=config.hidden_size,
        num_logits=reader.num_logits,
        logit_ids=reader.logit_ids,
        cache=cache_shape(config, cache.max_positions),
        graphs={"features": features, "step": step},
        plan=plan,
        source=source,
        tables=layer_tables(config, cache.max_positions),
    )


class _Reader:
    """Builds the two graphs."""

    def __init__(
        self,
        tensors: UsedTensors,
        config: Any,  # a LlamaConfig, whose fields may be None until it has filled them in
        target: TargetParts,
        taps: tuple[int, ...],
        asked_ids: tuple[int, ...] | None,
    ) -> None:
        checkpoint = tensors.checkpoint
        self.tensors, self._config, self._target, self.taps = tensors, config, target, taps
        self._is_third = checkpoint.kind == "eagle3"
        if not self._is_third and config.hidden_size != target.hidden_size:
            raise CheckpointError(
                f"{checkpoint.id} is for a hidden size of {config.hidden_size}, {target.id} has {target.hidden_size}"
            )
        if config.vocab_size < target.tokenizer_size:
            raise CheckpointError(
                f"{checkpoint.id} knows {config.vocab_size} ids; {target.id} has the {target.tokenizer_size} of its "
                "tokenizer"
            )
        self._layer = DecoderLayer(tensors, "midlayer." if self._is_third else "layers.0.", config)
        self.logit_ids, self._num_rows = asked_ids, target.vocab_size  # of the output layer
        if self._is_third:
            self._read_own_ids()
        self.num_logits = self._num_rows if self.logit_ids is None else len(self.logit_ids)

    def features(self, graph: GraphBuilder) -> tuple[ir.Model, Plan]:
        """aux_hidden.{k} of the target -> features, the states that the layer starts from."""
        target, hidden, tensors = self._target, self._config.hidden_size, self.tensors
        streams = [graph.input(contract.aux_hidden(tap), "f32", ("num_rows", target.hidden_size)) for tap in self.taps]
        if self._is_third:
            weight = tensors.name("fc.weight", hidden, _NUM_TAPS * target.hidden_size)
            joined = graph.join_columns(streams)
            result = graph.linear(joined, "fc", [weight], bias=tensors.optional("fc.bias", hidden))
        else:
            result = graph.rms_norm(streams[0], "final_norm", target.final_norm, target.norm_epsilon)
        graph.output(result, "features", ("num_rows", hidden))
        return graph.finish(), graph.plan

    def step(self, graph: GraphBuilder, cache_dtype: str) -> tuple[ir.Model, Plan]:
        """The contract's inputs and `features` -> logits and next_features of the asked rows."""
        config, hidden = self._config, self._config.hidden_size
        inputs = step_inputs(graph, config, hidden, cache_dtype)
        token = graph.embedding(inputs.shared["input_ids"], "embedding", self._embedding())
        joined, residual = self._join(graph, token, inputs.features)
        columns = 2 * hidden if self._is_third else hidden
        result = self._layer.add(graph, inputs, joined, residual, columns=columns)
        kept = graph.gather_rows(result, inputs.shared["output_rows"])
        if self._is_third:
            norm = (self.tensors.name("norm.weight", hidden), config.rms_norm_eps)
            weight = self.tensors.name("lm_head.weight", self._num_rows, hidden)
            logits = graph.linear(kept, "lm_head", [weight], norm=norm)
        else:
            logits = graph.linear(kept, "lm_head", [self._target.lm_head])
        graph.output(logits, "logits", ("num_outputs", self.num_logits))
        graph.output(kept, "next_features", ("num_outputs", hidden))
        return graph.finish(), graph.plan

    def _join(self, graph: GraphBuilder, token: ir.Value, state: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What attention reads, and the residual stream around it."""
        hidden, epsilon = self._config.hidden_size, self._config.rms_norm_eps
        if not self._is_third:
            joined = graph.join_columns([token, state])
            weight = self.tensors.name("fc.weight", hidden, 2 * hidden)
            joined = graph.linear(joined, "fc", [weight], bias=self.tensors.optional("fc.bias", hidden))
            return joined, joined
        parts = []
        for value, norm in ((token, "input_layernorm"), (state, "hidden_norm")):
            parts.append(graph.rms_norm(value, norm, self._layer.part(f"{norm}.weight", hidden), epsilon))
        residual = parts[1] if self.tensors.checkpoint.config.get(NORMED_RESIDUAL) else state
        return graph.join_columns(parts), residual

    def _embedding(self) -> str:
        """The head's own embedding of the target's width, else the target's."""
        checkpoint, config = self.tensors.checkpoint, self._config
        if "embed_tokens.weight" in checkpoint.tensors:
            return self.tensors.name("embed_tokens.weight", config.vocab_size, config.hidden_size)
        if config.hidden_size != self._target.hidden_size:
            raise CheckpointError(
                f"{checkpoint.id} has no embed_tokens.weight, and the embedding of {self._target.id} has "
                f"{self._target.hidden_size} columns, not {config.hidden_size}"
            )
        return self._target.embedding

    def _read_own_ids(self) -> None:
        ids = self._read_map()
        self._num_rows = len(ids)
        if ids == tuple(range(len(ids))):
            return
        self.logit_ids = ids

    def _read_map(self) -> tuple[int, ...]:
        """d2t: row j of the logits is about token j + d2t[j]; t2d, which tokens are among them, says the same."""
        checkpoint = self.tensors.checkpoint
        tensors, name = checkpoint.tensors, checkpoint.id
        num_logits = int(checkpoint.setting("draft_vocab_size", self._config.vocab_size))
        if "d2t" not in tensors:
            if num_logits != self._config.vocab_size:
                raise CheckpointError(f"{name} scores {num_logits} of {self._config.vocab_size} ids, but has no d2t")
            return tuple(range(num_logits))
        offsets = checkpoint.tensor("d2t", num_logits)
        if offsets.is_floating_point():
            raise CheckpointError(f"{name}: d2t is of type {offsets.dtype}; it must hold whole numbers")
        self.tensors.names |= {"d2t", "t2d"}
        ids = tuple(row + int(offset) for row, offset in enumerate(offsets.tolist()))
        if list(ids) != sorted(set(ids)) or ids[0] < 0 or ids[-1] >= self._target.tokenizer_size:
            raise CheckpointError(
                f"{name}: d2t does not lead to ascending ids below {self._target.tokenizer_size}; it must hold "
                "the difference between a token's id and its row"
            )
        if "t2d" in tensors and torch.nonzero(tensors["t2d"]).flatten().tolist() != list(ids):
            raise CheckpointError(f"{name}: t2d names other tokens than d2t")
        return ids


def _config_sizes(checkpoint: HeadCheckpoint) -> Iterator[Size]:
    yield from rows(checkpoint, "hidden_size", "fc.weight")
    yield from rows(checkpoint, "vocab_size", "embed_tokens.weight")
    if checkpoint.kind == "eagle3":
        yield from rows(checkpoint, "draft_vocab_size", "lm_head.weight")
        yield from _taps_sizes(checkpoint)
    yield from layer_sizes(checkpoint, "midlayer." if checkpoint.kind == "eagle3" else "layers.0.")


def _taps_sizes(checkpoint: HeadCheckpoint) -> Iterator[Size]:
    fc, width = checkpoint.tensors.get("fc.weight"), checkpoint.config.get("target_hidden_size")
    if fc is not None and fc.ndim == 2 and width:  # noqa: PLR2004 - a matrix
        count = len(named_taps(checkpoint)) or _NUM_TAPS
        yield f"{count} streams of target_hidden_size {width}, in columns", count * width, "fc.weight", int(fc.shape[1])


def _first_logits(head: TorchHead, streams: Mapping[int, Tensor], ids: Tensor) -> Tensor:
    joined = torch.cat([head.rows(_embedding_of(head), ids[1:]), head.state(streams)[:-1]], dim=-1)
    x = head.linear(joined, "fc.weight", "fc.bias")
    return head.output(head.layer("layers.0.", x, x), head.target.lm_head)


def _third_logits(head: TorchHead, streams: Mapping[int, Tensor], ids: Tensor) -> Tensor:
    epsilon = layer_config(head.checkpoint).rms_norm_eps
    state = head.linear(torch.cat(list(streams.values()), dim=-1)[:-1], "fc.weight", "fc.bias")
    token = head.rms_norm(head.rows(_embedding_of(head), ids[1:]), "midlayer.input_layernorm.weight", epsilon)
    normed = head.rms_norm(state, "midlayer.hidden_norm.weight", epsilon)
    residual = normed if head.checkpoint.config.get(NORMED_RESIDUAL) else state
    result = head.layer("midlayer.", torch.cat([token, normed], dim=-1), residual)
    return head.output(head.rms_norm(result, "norm.weight", epsilon), "lm_head.weight")


def _embedding_of(head: TorchHead) -> str:
    own = "embed_tokens.weight"
    return own if own in head.checkpoint.tensors else head.target.embedding


FIRST = HeadKind(
    name="eagle",
    title="EAGLE heads of generations 1 to 3",
    tensor=re.compile(r"layers\.0\.self_attn\.q_proj\.weight"),
    prefix=None,
    files=(),
    words=(),  # its generation tells it, see config_check
    counts=("target_hidden_size", "draft_vocab_size"),
    counts_from_zero=(),
    sizes=_config_sizes,
    taps=_taps,
    build=_build,
    run=run_layer,
    torch_logits=_first_logits,
)
THIRD = replace(FIRST, name="eagle3", tensor=re.compile(r"midlayer\."), torch_logits=_third_logits)
