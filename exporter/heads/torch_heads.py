"""What heads consist of in torch, for comparing an exported head with: tensors by name, norms, a decoder layer.

Each kind's own file puts them together as its paper and its checkpoints define it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from .decoder_layer import layer_config
from .kinds import KINDS
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
        self.checkpoint, self.target = checkpoint, target
        self._read, self._read_output = read, read_output

    def logits(self, streams: Streams, ids: Tensor) -> Tensor:
        """Logits of all the head's outputs one after the other, f32 [num_outputs * num_rows, num_logits].

        streams: the target's at ids, by tap, f32 [num_tokens, hidden]. Row t of an output is what the head says with
        the true tokens up to t + 1, and of an MLP speculator's stage i up to t + 1 + i.
        """
        with torch.no_grad():
            return KINDS[self.checkpoint.kind].torch_logits(self, streams, ids)

    def state(self, streams: Streams) -> Tensor:
        """The target's after its final norm, and what the head adds of further streams; [num_tokens, hidden]."""
        target = self.target
        state = self.rms_norm(streams[target.num_layers], target.final_norm, target.norm_epsilon)
        if STREAMS not in self.checkpoint.tensors:
            return state
        joined = torch.cat([streams[tap] for tap in stream_taps(self.checkpoint)], dim=-1)
        return state + self.linear(joined, STREAMS)

    def layer(self, prefix: str, x: Tensor, residual: Tensor) -> Tensor:
        """A causal decoder layer that attends to x [num_rows, columns]; the result [num_rows, hidden]."""
        config = layer_config(self.checkpoint)
        heads = []
        for name in ("q", "k", "v"):
            part = f"{prefix}self_attn.{name}"
            head = self.linear(x, f"{part}_proj.weight", f"{part}_proj.bias")
            head = head.view(len(x), -1, config.head_dim)
            if f"{part}_norm.weight" in self.checkpoint.tensors:
                head = self.rms_norm(head, f"{part}_norm.weight", config.rms_norm_eps)
            heads.append(head.transpose(0, 1)[None])
        q, k, v = heads
        q, k = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(x, torch.arange(len(x))[None]))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = residual + self.linear(attended[0].transpose(0, 1).flatten(1), f"{prefix}self_attn.o_proj.weight")
        normed = self.rms_norm(y, f"{prefix}post_attention_layernorm.weight", config.rms_norm_eps)
        gate, up = (self.linear(normed, f"{prefix}mlp.{name}_proj.weight") for name in ("gate", "up"))
        return y + self.linear(functional.silu(gate) * up, f"{prefix}mlp.down_proj.weight")

    def tensor(self, name: str) -> Tensor:
        """F32, in its own shape."""
        return torch.from_numpy(np.array(self._read(name), dtype=np.float32))

    def rows(self, name: str, ids: Tensor) -> Tensor:
        """Rows of a matrix."""
        return self.tensor(name)[ids]

    def linear(self, x: Tensor, weight: str, bias: str = "") -> Tensor:
        """X W^T, and the bias where the checkpoint has one of that name."""
        return functional.linear(x, self.tensor(weight), self.tensor(bias) if bias in self.checkpoint.tensors else None)

    def output(self, x: Tensor, weight: str) -> Tensor:
        """Logits by an output layer's matrix."""
        return x @ torch.from_numpy(np.array(self._read_output(weight), dtype=np.float32)).T

    def rms_norm(self, x: Tensor, weight: str, epsilon: float) -> Tensor:
        """Over the last axis."""
        return functional.rms_norm(x, x.shape[-1:], self.tensor(weight), epsilon)
