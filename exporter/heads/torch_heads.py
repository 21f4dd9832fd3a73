"""Heads in torch, as their papers and checkpoints define them, for comparing an exported head with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from . import mlp_speculator, mtp
from .decoder_layer import layer_config
from .speculators import NORMED_RESIDUAL
from .target_state import STREAMS, stream_taps

if TYPE_CHECKING:
    from torch import Tensor

    from .checkpoint import HeadCheckpoint
    from .tensor_source import TargetParts

Reader = Callable[[str], np.ndarray[Any, np.dtype[Any]]]
Streams = Mapping[int, torch.Tensor]


class TorchHead:
    """A head over tensors that `read` gives by name; the output layer's come from `read_output`."""

    def __init__(self, checkpoint: HeadCheckpoint, target: TargetParts, read: Reader, read_output: Reader) -> None:
        """Reads nothing yet."""
        self._checkpoint, self._target = checkpoint, target
        self._read, self._read_output = read, read_output

    def logits(self, streams: Streams, ids: Tensor) -> Tensor:
        """Logits of all the head's outputs one after the other, f32 [num_outputs * num_rows, num_logits].

        streams: the target's at ids, by tap, f32 [num_tokens, hidden]. Row t of an output is what the head says with
        the true tokens up to t + 1, and of an MLP speculator's stage i up to t + 1 + i.
        """
        kind = self._checkpoint.kind
        with torch.no_grad():
            if kind == "medusa":
                return self._medusa(self._state(streams))
            if kind == "mlp_speculator":
                return self._mlp(self._state(streams), ids)
            if kind == "eagle3":
                return self._eagle3([streams[tap] for tap in streams], ids[1:])
            return (self._mtp if kind == "mtp" else self._eagle)(self._state(streams), ids[1:])

    def _state(self, streams: Streams) -> Tensor:
        """The target's after its final norm, and what the head adds of further streams."""
        target = self._target
        state = self._rms_norm(streams[target.num_layers], target.final_norm, target.norm_epsilon)
        if STREAMS not in self._checkpoint.tensors:
            return state
        joined = torch.cat([streams[tap] for tap in stream_taps(self._checkpoint)], dim=-1)
        return state + self._linear(joined, STREAMS)

    def _medusa(self, state: Tensor) -> Tensor:
        num_heads, num_blocks = (int(self._checkpoint.setting(f"medusa_num_{part}")) for part in ("heads", "layers"))
        results = []
        for head in range(num_heads):
            x = state
            for block in range(num_blocks):
                x = x + functional.silu(self._linear(x, f"{head}.{block}.linear.weight", f"{head}.{block}.linear.bias"))
            output = f"{head}.{num_blocks}.weight"
            own = output in self._checkpoint.tensors
            results.append(self._linear(x, output) if own else self._output(x, self._target.lm_head))
        return torch.cat(results)

    def _mlp(self, state: Tensor, ids: Tensor) -> Tensor:
        checkpoint = self._checkpoint
        num_stages = int(checkpoint.setting("n_predict"))
        if checkpoint.config.get("scale_input"):
            state = functional.rms_norm(state, state.shape[-1:], eps=mlp_speculator.EPSILON) * math.sqrt(0.5)
        num_rows = len(ids) - num_stages
        state, results = state[:num_rows], []
        for stage in range(num_stages):
            parts = mlp_speculator.stage_names(checkpoint, stage)
            token = self._rows(parts["emb"], ids[1 + stage : 1 + stage + num_rows])
            state_weight, token_weight = mlp_speculator.stage_weights(num_stages, token.shape[-1])
            mixed = self._linear(state, parts["proj"]) + token_weight / state_weight * token
            scaled = self._rms_norm(mixed, parts["scale"], mlp_speculator.EPSILON)
            state = functional.gelu(scaled + self._tensor(parts["shift"]))
            results.append(self._linear(state, parts["head"]))
        return torch.cat(results)

    def _eagle(self, state: Tensor, tokens: Tensor) -> Tensor:
        own = "embed_tokens.weight"
        embedding = own if own in self._checkpoint.tensors else self._target.embedding
        joined = torch.cat([self._rows(embedding, tokens), state[:-1]], dim=-1)
        x = self._linear(joined, "fc.weight", "fc.bias")
        return self._output(self._layer("layers.0.", x, x), self._target.lm_head)

    def _eagle3(self, streams: list[Tensor], tokens: Tensor) -> Tensor:
        epsilon = layer_config(self._checkpoint).rms_norm_eps
        state = self._linear(torch.cat(streams, dim=-1)[:-1], "fc.weight", "fc.bias")
        own = "embed_tokens.weight"
        embedding = own if own in self._checkpoint.tensors else self._target.embedding
        token = self._rms_norm(self._rows(embedding, tokens), "midlayer.input_layernorm.weight", epsilon)
        normed = self._rms_norm(state, "midlayer.hidden_norm.weight", epsilon)
        residual = normed if self._checkpoint.config.get(NORMED_RESIDUAL) else state
        result = self._layer("midlayer.", torch.cat([token, normed], dim=-1), residual)
        return self._output(self._rms_norm(result, "norm.weight", epsilon), "lm_head.weight")

    def _mtp(self, state: Tensor, tokens: Tensor) -> Tensor:
        prefix, layout = mtp.find_layout(self._checkpoint)
        epsilon = layer_config(self._checkpoint).rms_norm_eps
        embedding, output = (
            prefix + name if prefix + name in self._checkpoint.tensors else shared
            for name, shared in (
                ("embed_tokens.weight", self._target.embedding),
                ("shared_head.head.weight", self._target.lm_head),
            )
        )
        parts = [
            self._rms_norm(self._rows(embedding, tokens), f"{prefix}{layout.embedding_norm}.weight", epsilon),
            self._rms_norm(state[:-1], f"{prefix}{layout.state_norm}.weight", epsilon),
        ]
        x = self._linear(
            torch.cat(parts[::-1] if layout.state_first else parts, dim=-1), f"{prefix}{layout.joint}.weight"
        )
        layer = prefix + layout.layer
        result = self._layer(layer, self._rms_norm(x, f"{layer}input_layernorm.weight", epsilon), x)
        return self._output(self._rms_norm(result, f"{prefix}{layout.final_norm}.weight", epsilon), output)

    def _layer(self, prefix: str, x: Tensor, residual: Tensor) -> Tensor:
        config = layer_config(self._checkpoint)
        heads = []
        for name in ("q", "k", "v"):
            part = f"{prefix}self_attn.{name}"
            head = self._linear(x, f"{part}_proj.weight", f"{part}_proj.bias")
            head = head.view(len(x), -1, config.head_dim)
            if f"{part}_norm.weight" in self._checkpoint.tensors:
                head = self._rms_norm(head, f"{part}_norm.weight", config.rms_norm_eps)
            heads.append(head.transpose(0, 1)[None])
        q, k, v = heads
        q, k = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(x, torch.arange(len(x))[None]))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = residual + self._linear(attended[0].transpose(0, 1).flatten(1), f"{prefix}self_attn.o_proj.weight")
        normed = self._rms_norm(y, f"{prefix}post_attention_layernorm.weight", config.rms_norm_eps)
        gate, up = (self._linear(normed, f"{prefix}mlp.{name}_proj.weight") for name in ("gate", "up"))
        return y + self._linear(functional.silu(gate) * up, f"{prefix}mlp.down_proj.weight")

    def _tensor(self, name: str) -> Tensor:
        return torch.from_numpy(np.array(self._read(name), dtype=np.float32))

    def _rows(self, name: str, ids: Tensor) -> Tensor:
        return self._tensor(name)[ids]

    def _linear(self, x: Tensor, weight: str, bias: str = "") -> Tensor:
        return functional.linear(
            x, self._tensor(weight), self._tensor(bias) if bias in self._checkpoint.tensors else None
        )

    def _output(self, x: Tensor, weight: str) -> Tensor:
        return x @ torch.from_numpy(np.array(self._read_output(weight), dtype=np.float32)).T

    def _rms_norm(self, x: Tensor, weight: str, epsilon: float) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self._tensor(weight), epsilon)
