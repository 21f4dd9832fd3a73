"""A multi-token prediction layer that is part of the target's own checkpoint: one decoder layer that drafts.

DeepSeek-AI 2024, "DeepSeek-V3 technical report", section 2.2: the embedding of token t + 1 and the target's state of
position t, each normed, are joined by a linear layer; a decoder layer of the target's kind follows, a norm, and the
target's output layer scores token t + 2. The state is the target's after its final norm. One layer drafts any number of
tokens when each step takes the state that the step before left: after its last norm in the layouts of Qwen3-Next and
MiMo, before it in DeepSeek's, as vLLM and SGLang run them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pilotfish.exporter.contract import aux_hidden
from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

from .config_sizes import compared, layer_sizes
from .decoder_layer import (
    DecoderLayer,
    StepInputs,
    UsedTensors,
    cache_shape,
    layer_config,
    layer_tables,
    run_layer,
    step_inputs,
)
from .graph_builder import GraphBuilder, num_scored
from .head_kind import HeadKind
from .head_model import HeadModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    import onnx_ir as ir
    from torch import Tensor

    from pilotfish.exporter.passes import Plan

    from .checkpoint import HeadCheckpoint
    from .config_sizes import Size
    from .head_model import CacheOptions
    from .tensor_source import TargetParts, TensorSource
    from .torch_heads import TorchHead


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of a layer's tensors, behind its prefix and without ".weight"."""

    embedding_norm: str
    state_norm: str
    joint: str
    final_norm: str
    layer: str = ""  # beginning of the decoder layer's names
    state_first: bool = False  # the joint reads [state, embedding]
    passes_normed: bool = True  # the next step's state is after the final norm


_LAYOUTS = {  # by the name of the joint
    "fc": Layout("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm", "layers.0."),
    "eh_proj": Layout("enorm", "hnorm", "eh_proj", "shared_head.norm", passes_normed=False),
    "input_proj": Layout("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm", state_first=True),
}
_REFUSED = {  # part of a tensor's name
    "mlp.experts.": "is a mixture of experts",
    "mlp.gate.": "is a mixture of experts",
    "self_attn.kv_a_proj": "has multi-head latent attention",
    "linear_attn.": "has linear attention",
}


def _taps(_checkpoint: HeadCheckpoint, num_layers: int) -> tuple[int, ...]:
    """The stream before the final norm."""
    return (num_layers,)


def _build(checkpoint: HeadCheckpoint, source: TensorSource, plan: Plan, cache: CacheOptions) -> HeadModel:
    """Reads the layouts of Qwen3-Next (mtp.*), DeepSeek-V3 (model.layers.{n}.*) and MiMo (model.mtp_layers.0.*).

    Raises:
        CheckpointError: another size than the target's, or a missing tensor.
        UnsupportedModelError: several layers, or a decoder layer of a kind that targets may not have either.
    """
    target = source.target
    prefix, layout = _find_layout(checkpoint)
    config = layer_config(checkpoint)
    if (config.hidden_size, config.vocab_size) != (target.hidden_size, target.vocab_size):
        raise CheckpointError(
            f"{checkpoint.id} is for a hidden size of {config.hidden_size} and {config.vocab_size} ids, {target.id} "
            f"has {target.hidden_size} and {target.vocab_size}; an MTP layer belongs to the model that it came with"
        )
    _check_layer(checkpoint, prefix + layout.layer, config)
    tensors = UsedTensors(checkpoint)
    reader = _Reader(tensors, prefix, layout, config, target)
    features = reader.features(GraphBuilder("features", plan, source))
    step = reader.step(GraphBuilder("step", plan, source), cache.dtype)
    checkpoint.refuse_others(tensors.names)
    return HeadModel(
        kind=checkpoint.kind,
        taps=_taps(checkpoint, target.num_layers),
        num_predictions=0,
        state_size=config.hidden_size,
        num_logits=num_scored(plan, target.vocab_size),
        logit_ids=plan.logit_ids,
        cache=cache_shape(config, cache.max_positions),
        graphs={"features": features, "step": step},
        plan=plan,
        source=source,
        tables=layer_tables(config, cache.max_positions),
    )


def _find_layout(checkpoint: HeadCheckpoint) -> tuple[str, Layout]:
    """The layer's prefix and layout; all tensors of the checkpoint are of MTP layers.

    Raises:
        UnsupportedModelError: several layers.
    """
    found = [name.removesuffix(".weight").rpartition(".") for name in sorted(checkpoint.tensors)]
    layers = [(prefix + dot, _LAYOUTS[last]) for prefix, dot, last in found if last in _LAYOUTS]
    further = [name for name in checkpoint.tensors if name.startswith("mtp.layers.1.")]
    if len(layers) > 1 or further:
        other = further[0] if further else layers[1][0]
        raise UnsupportedModelError(f"{checkpoint.id} has further MTP layers ({other}...); one is supported")
    return layers[0]


def _check_layer(checkpoint: HeadCheckpoint, prefix: str, config: Any) -> None:
    """Names what it is about a layer that cannot be exported, where a missing tensor would say little."""
    for name in checkpoint.tensors:
        for part, reason in _REFUSED.items():
            if name.startswith(prefix + part):
                raise UnsupportedModelError(
                    f"the MTP layer of {checkpoint.id} {reason} ({name}), which is not supported"
                )
    query = checkpoint.tensors.get(f"{prefix}self_attn.q_proj.weight")
    if query is not None and len(query) == 2 * config.num_attention_heads * config.head_dim:
        raise UnsupportedModelError(
            f"the MTP layer of {checkpoint.id} has an output gate in its attention, which is not supported"
        )
    if checkpoint.config.get("sliding_window") and checkpoint.config.get("use_sliding_window", True):
        raise UnsupportedModelError(f"{checkpoint.id} has sliding windows; whether its MTP layer has one is not known")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Builds the two graphs."""

    tensors: UsedTensors
    prefix: str
    layout: Layout
    config: Any
    target: TargetParts

    def features(self, graph: GraphBuilder) -> tuple[ir.Model, Plan]:
        """The target's stream -> its state after the final norm."""
        target = self.target
        stream = graph.input(aux_hidden(target.num_layers), "f32", ("num_rows", target.hidden_size))
        state = graph.rms_norm(stream, "final_norm", target.final_norm, target.norm_epsilon)
        graph.output(state, "features", ("num_rows", target.hidden_size))
        return graph.finish(), graph.plan

    def step(self, graph: GraphBuilder, cache_dtype: str) -> tuple[ir.Model, Plan]:
        """The contract's inputs and `features` -> logits and next_features of the asked rows."""
        config, layout, hidden = self.config, self.layout, self.config.hidden_size
        inputs = step_inputs(graph, config, hidden, cache_dtype)
        x = self._join(graph, inputs)
        layer = DecoderLayer(self.tensors, self.prefix + layout.layer, config)
        result = layer.add(graph, inputs, x, x, columns=hidden, norm="input_layernorm.weight")
        kept = graph.gather_rows(result, inputs.shared["output_rows"])
        final_norm = self._name(layout.final_norm, hidden)
        output = self._own("shared_head.head.weight") or self.target.lm_head
        if layout.passes_normed:
            kept = graph.rms_norm(kept, "norm", final_norm, config.rms_norm_eps)
            logits = graph.linear(kept, "lm_head", [output])
        else:
            logits = graph.linear(kept, "lm_head", [output], norm=(final_norm, config.rms_norm_eps))
        graph.output(logits, "logits", ("num_outputs", num_scored(graph.plan, self.target.vocab_size)))
        graph.output(kept, "next_features", ("num_outputs", hidden))
        return graph.finish(), graph.plan

    def _join(self, graph: GraphBuilder, inputs: StepInputs) -> ir.Value:
        layout, hidden = self.layout, self.config.hidden_size
        embedding = self._own("embed_tokens.weight") or self.target.embedding
        token = graph.embedding(inputs.shared["input_ids"], "embedding", embedding)
        parts = []
        for value, name in ((token, layout.embedding_norm), (inputs.features, layout.state_norm)):
            parts.append(graph.rms_norm(value, name, self._name(name, hidden), self.config.rms_norm_eps))
        if layout.state_first:
            parts.reverse()
        joined = graph.join_columns(parts)
        return graph.linear(joined, "fc", [self._name(layout.joint, hidden, 2 * hidden)])

    def _name(self, name: str, *shape: int) -> str:
        return self.tensors.name(f"{self.prefix}{name}.weight", *shape)

    def _own(self, name: str) -> str | None:
        """The layer's own copy of a matrix that it shares with the target, where the checkpoint has one."""
        sizes = (self.target.vocab_size, self.target.hidden_size)
        return next(iter(self.tensors.optional(self.prefix + name, *sizes)), None)


def prefixes_of(names: Iterable[str]) -> tuple[str, ...]:
    """What the names of a target's multi-token prediction layers begin with; empty if it has none."""
    return tuple({found[1] for name in names if (found := KIND.tensor.match(name))})


def _config_sizes(checkpoint: HeadCheckpoint) -> Iterator[Size]:
    names = sorted(checkpoint.tensors)
    numbered = [(int(match[1]), name) for name in names if (match := re.match(r"model\.layers\.(\d+)\.", name))]
    if numbered:  # the first one comes after the target's last layer
        first, name = min(numbered)
        yield from compared(checkpoint, "num_hidden_layers", name, first)
    yield from layer_sizes(checkpoint, "")


def _torch_logits(head: TorchHead, streams: Mapping[int, Tensor], ids: Tensor) -> Tensor:
    prefix, layout = _find_layout(head.checkpoint)
    epsilon = layer_config(head.checkpoint).rms_norm_eps
    embedding, output = (
        prefix + name if prefix + name in head.checkpoint.tensors else shared
        for name, shared in (
            ("embed_tokens.weight", head.target.embedding),
            ("shared_head.head.weight", head.target.lm_head),
        )
    )
    parts = [
        head.rms_norm(head.rows(embedding, ids[1:]), f"{prefix}{layout.embedding_norm}.weight", epsilon),
        head.rms_norm(head.state(streams)[:-1], f"{prefix}{layout.state_norm}.weight", epsilon),
    ]
    joined = torch.cat(parts[::-1] if layout.state_first else parts, dim=-1)
    x = head.linear(joined, f"{prefix}{layout.joint}.weight")
    layer = prefix + layout.layer
    result = head.layer(layer, head.rms_norm(x, f"{layer}input_layernorm.weight", epsilon), x)
    return head.output(head.rms_norm(result, f"{prefix}{layout.final_norm}.weight", epsilon), output)


KIND = HeadKind(
    name="mtp",
    title="MTP layers",
    # The prefix of a layer's tensors, by the name of the one that joins embedding and state.
    tensor=re.compile(r"(mtp\.(?=fc\.)|model\.layers\.\d+\.(?=eh_proj\.)|model\.mtp_layers\.\d+\.(?=input_proj\.))"),
    prefix=None,
    files=(),
    words=(),
    counts=(),
    counts_from_zero=("num_nextn_predict_layers",),
    sizes=_config_sizes,
    taps=_taps,
    build=_build,
    run=run_layer,
    torch_logits=_torch_logits,
)
