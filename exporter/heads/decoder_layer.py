"""A decoder layer of the Llama and Qwen kind in a head's step graph: attention over its own cache, then a gated MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from pilotfish.exporter import contract
from pilotfish.exporter.errors import CheckpointError, ExportError, UnsupportedModelError, in_one_line
from pilotfish.exporter.rotary_tables import check_rope_type

from .head_model import Array, CacheShape

if TYPE_CHECKING:
    import onnx_ir as ir

    from .checkpoint import HeadCheckpoint
    from .graph_builder import GraphBuilder
    from .head_kind import HeadRun

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_DEFAULT_POSITIONS = 2048
_OPTIONAL = ("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters")


def layer_config(checkpoint: HeadCheckpoint) -> Any:
    """The sizes of the checkpoint's decoder layer, as a Llama configuration.

    Raises:
        CheckpointError: a size is missing.
        UnsupportedModelError: another activation, or rotary embeddings of another kind or of a part of a head.
    """
    if checkpoint.setting("hidden_act", "silu") != "silu":
        raise UnsupportedModelError(f"{checkpoint.id} has activation {checkpoint.config['hidden_act']}, not silu")
    if (part := checkpoint.config.get("partial_rotary_factor") or 1) != 1:
        raise UnsupportedModelError(
            f"{checkpoint.id} rotates {part} of each attention head; layers that rotate all of it are supported"
        )
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    given = {name: checkpoint.setting(name) for name in names}
    given |= {name: checkpoint.config[name] for name in _OPTIONAL if checkpoint.config.get(name) is not None}
    given |= {"max_position_embeddings": checkpoint.config.get("max_position_embeddings") or _DEFAULT_POSITIONS}
    try:
        config = LlamaConfig(**given)
        check_rope_type(config, fixed=True)
        LlamaRotaryEmbedding(config)
    except ExportError:
        raise
    except Exception as error:  # whatever transformers' checks of values that a user wrote raise
        raise CheckpointError(f"{checkpoint.id}: config.json describes no layer: {in_one_line(error)}") from error
    return config


def cache_shape(config: Any, max_positions: int) -> CacheShape:
    """The cache that the layer needs."""
    return CacheShape(config.num_attention_heads, config.num_key_value_heads, config.head_dim, max_positions)


def layer_tables(config: LlamaConfig, num_positions: int) -> dict[str, Array]:
    """Rotary tables `cos` and `sin`, f32 [num_positions, head_dim / 2]."""
    with torch.no_grad():
        cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(num_positions)[None])
    half = cos.shape[-1] // 2
    return {name: table[0, :, :half].contiguous().numpy() for name, table in (("cos", cos), ("sin", sin))}


class UsedTensors:
    """A checkpoint's tensors by name, and which of them were asked for."""

    def __init__(self, checkpoint: HeadCheckpoint) -> None:
        """Nothing was asked for yet."""
        self.checkpoint = checkpoint
        self.names: set[str] = set()

    def name(self, name: str, *shape: int) -> str:
        """The name, once its tensor is known to have the shape."""
        self.checkpoint.tensor(name, *shape)
        self.names.add(name)
        return name

    def optional(self, name: str, *shape: int) -> list[str]:
        """The name in a list, empty if there is no such tensor."""
        return [self.name(name, *shape)] if name in self.checkpoint.tensors else []


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What every step graph starts from."""

    shared: dict[str, ir.Value]  # the inputs of a model, by name
    features: ir.Value  # [num_tokens, state_size]
    caches: tuple[ir.Value, ir.Value]


def step_inputs(graph: GraphBuilder, config: Any, state_size: int, cache_dtype: str) -> StepInputs:
    """Adds the inputs of a step graph."""
    shared = {port.name: graph.input(port.name, port.dtype, port.axes) for port in contract.INPUTS}
    features = graph.input("features", "f32", ("num_tokens", state_size))
    names = (contract.key_cache(0), contract.value_cache(0))
    ports = [contract.cache_port(name, cache_dtype, config.num_key_value_heads, config.head_dim) for name in names]
    keys, values = (graph.input(port.name, port.dtype, port.axes) for port in ports)
    return StepInputs(shared, features, (keys, values))


def run_layer(graphs: HeadRun, ids: list[int]) -> Array:
    """Logits of a head whose graphs are `features` and `step`."""
    features = graphs.rows("features", graphs.streams, ["features"])[0]
    return graphs.step("step", ids[1:], {"features": features[:-1]})


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """The layer whose tensors have names that begin with `prefix`; biases and norms of q and k where it has them."""

    tensors: UsedTensors
    prefix: str
    config: Any  # a LlamaConfig, whose fields may be None until it has filled them in

    def add(
        self, graph: GraphBuilder, inputs: StepInputs, x: ir.Value, residual: ir.Value, *, columns: int, norm: str = ""
    ) -> ir.Value:
        """Adds the layer over x [num_tokens, columns]; norm: name of the weight of an RMSNorm of x, if it has one."""
        config, hidden = self.config, self.config.hidden_size
        sizes = self._qkv_sizes()
        weights = [
            self.part(f"self_attn.{name}.weight", size, columns) for name, size in zip(_PROJECTIONS, sizes, strict=True)
        ]
        before = (self.part(norm, columns), config.rms_norm_eps) if norm else None
        qkv = graph.linear(x, "qkv", weights, bias=self._bias(sizes), norm=before)
        attended = self._attend(graph, inputs, qkv)
        output = graph.linear(
            attended, "o", [self.part("self_attn.o_proj.weight", hidden, sizes[0])], residual=residual
        )
        middle = config.intermediate_size
        after = (self.part("post_attention_layernorm.weight", hidden), config.rms_norm_eps)
        gate_up = [self.part(f"mlp.{name}_proj.weight", middle, hidden) for name in ("gate", "up")]
        gated = graph.linear(output, "gate_up", gate_up, norm=after, swiglu=True)
        return graph.linear(gated, "down", [self.part("mlp.down_proj.weight", hidden, middle)], residual=output)

    def part(self, name: str, *shape: int) -> str:
        """The full name of one of the layer's tensors."""
        return self.tensors.name(self.prefix + name, *shape)

    def _attend(self, graph: GraphBuilder, inputs: StepInputs, qkv: ir.Value) -> ir.Value:
        config = self.config
        norms = [
            graph.vector(name, source)
            if (source := self._optional(f"self_attn.{name}.weight", config.head_dim))
            else None
            for name in ("q_norm", "k_norm")
        ]
        attributes: dict[str, str | int | float] = {
            "num_heads": config.num_attention_heads,
            "num_kv_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "rotary_dim": config.head_dim,
            "interleaved": 0,
            "scale": config.head_dim**-0.5,
            "sliding_window": 0,
            "softcap": 0.0,
            "norm_epsilon": config.rms_norm_eps if norms[0] is not None else 0.0,
        }
        shared = [inputs.shared[name] for name in contract.ATTENTION_INPUTS]
        tables = [graph.plan.value(name) for name in ("cos", "sin")]
        return graph.op("PagedAttention", qkv, *shared, *tables, *inputs.caches, *norms, attributes=attributes)

    def _bias(self, sizes: tuple[int, int, int]) -> list[str]:
        names = [f"self_attn.{name}.bias" for name in _PROJECTIONS]
        if self.prefix + names[0] not in self.tensors.checkpoint.tensors:
            return []
        return [self.part(name, size) for name, size in zip(names, sizes, strict=True)]

    def _optional(self, name: str, *shape: int) -> list[str]:
        return self.tensors.optional(self.prefix + name, *shape)

    def _qkv_sizes(self) -> tuple[int, int, int]:
        config = self.config
        keys = config.num_key_value_heads * config.head_dim
        return config.num_attention_heads * config.head_dim, keys, keys
