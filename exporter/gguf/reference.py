"""A GGUF model's logits by another way than the exporter's: for the parity check, so that it sees faults of the reader.

Metadata and values come from the gguf package, which is llama.cpp's own. The computation is llama.cpp's, on the tensors
as they lie in the file: rows of q and k are not put in another order, and the rotation is of the file's own fields. No
code is shared with the modules that the exporter reads by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from .reference_families import COMPUTATIONS
from .reference_file import ReferenceFile
from .reference_rotation import Rotation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu_squared": lambda x: functional.relu(x).square(),
}


class GgufReference:
    """The model of a GGUF file or of all parts of a split one; `parts` in their order."""

    def __init__(self, parts: Sequence[Path]) -> None:
        self._file = ReferenceFile(parts)
        self._kind = COMPUTATIONS[self._file.architecture]
        self._num_heads = int(self._file.value("attention.head_count"))
        self._num_kv_heads = int(self._file.value("attention.head_count_kv", self._num_heads))
        self._hidden = int(self._file.value("embedding_length"))
        self._head_size = int(self._file.value("attention.key_length", self._hidden // self._num_heads))

    @staticmethod
    def knows(architecture: str) -> bool:
        """Whether the computation of an architecture is written down here."""
        return architecture in COMPUTATIONS

    def logits(self, ids: Sequence[int]) -> Array:
        """Logits f32 [num_tokens, vocab_size] of one causal pass."""
        with torch.no_grad():
            x = self._embedded(ids)
            rotations = {
                has_window: Rotation(self._file, self._kind, self._head_size, len(ids), has_window=has_window)
                for has_window in (False, True)
            }
            for layer in range(int(self._file.value("block_count"))):
                x = self._layer(x, layer, rotations)
            x = self._norm(x, "output_norm")
            name = "output" if self._file.has("output.weight") else "token_embd"
            return np.asarray(self._scaled_logits(self._linear(x, name)).numpy())

    def _embedded(self, ids: Sequence[int]) -> torch.Tensor:
        x = self._file.read("token_embd.weight")[torch.tensor(ids)]
        if self._file.has("position_embd.weight"):
            x = x + self._file.read("position_embd.weight")[: len(ids)]
        root = math.sqrt(self._hidden) if self._kind.embedding_root else 1.0
        return x * (root * float(self._file.value("embedding_scale", 1.0)))

    def _scaled_logits(self, logits: torch.Tensor) -> torch.Tensor:
        scale = float(self._file.value("logit_scale", 1.0))
        logits = logits / scale if self._kind.divides_logits else logits * scale
        return _capped(logits, float(self._file.value("final_logit_softcapping", self._kind.final_cap)))

    def _layer(self, x: torch.Tensor, layer: int, rotations: dict[bool, Rotation]) -> torch.Tensor:
        prefix, scale = f"blk.{layer}.", float(self._file.value("residual_scale", 1.0))
        h = self._norm(x, f"{prefix}attn_norm")
        mixed = self._attention(h, layer, rotations)
        if self._kind.ffn_norm != "post_attention_norm":
            mixed = self._norm(mixed, f"{prefix}post_attention_norm", is_optional=True)
        ffn_norm = f"{prefix}{self._kind.ffn_norm}"
        if self._file.value("use_parallel_residual", self._kind.is_parallel):
            h = self._norm(x, ffn_norm) if self._file.has(f"{ffn_norm}.weight") else h
            return x + mixed + self._mlp(h, prefix)
        x = x + mixed * scale
        changed = self._mlp(self._norm(x, ffn_norm), prefix)
        return x + self._norm(changed, f"{prefix}post_ffw_norm", is_optional=True) * scale

    def _attention(self, h: torch.Tensor, layer: int, rotations: dict[bool, Rotation]) -> torch.Tensor:
        prefix = f"blk.{layer}."
        window = self._window(layer)
        q, k, v = self._query_key_value(h, prefix)
        rotate = rotations[window > 0 and self._kind.window_period > 0] if self._rotates(layer, window) else None
        q = self._normed_and_rotated(q, f"{prefix}attn_q", rotate)
        k = self._normed_and_rotated(k, f"{prefix}attn_k", rotate)
        k, v = (heads.repeat_interleave(self._num_heads // self._num_kv_heads, dim=1) for heads in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q * self._scale(len(h)), k)
        scores = _capped(scores, float(self._file.value("attn_logit_softcapping", self._kind.attention_cap)))
        distance = torch.arange(len(h))[:, None] - torch.arange(len(h))
        hidden = (distance < 0) | (distance >= window) if window else distance < 0
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, v).reshape(len(h), -1)
        return self._linear(mixed, f"{prefix}attn_output")

    def _query_key_value(self, h: torch.Tensor, prefix: str) -> list[torch.Tensor]:
        """Each [num_tokens, heads, head size]."""
        counts = [self._num_heads, self._num_kv_heads, self._num_kv_heads]
        if self._file.has(f"{prefix}attn_qkv.weight"):
            sizes = [count * self._head_size for count in counts]
            parts = torch.split(self._linear(h, f"{prefix}attn_qkv"), sizes, dim=-1)
        else:
            parts = tuple(self._linear(h, f"{prefix}attn_{name}") for name in "qkv")
        limit = float(self._file.value("attention.clamp_kqv", math.inf))
        return [part.clamp(-limit, limit).reshape(len(h), count, -1) for part, count in zip(parts, counts, strict=True)]

    def _normed_and_rotated(self, heads: torch.Tensor, name: str, rotate: Rotation | None) -> torch.Tensor:
        has_norm = self._file.has(f"{name}_norm.weight")
        if self._kind.norms_after_rotation and rotate is not None:
            heads = rotate(heads)
        if has_norm and self._file.read(f"{name}_norm.weight").numel() == heads[0].numel():
            by_head = self._file.read(f"{name}_norm.weight").ndim > 1  # a row of weights a head
            flat = heads if by_head else heads.flatten(1)
            heads = self._norm(flat, f"{name}_norm").reshape(heads.shape)
        elif has_norm:
            heads = self._norm(heads, f"{name}_norm")
        return heads if rotate is None or self._kind.norms_after_rotation else rotate(heads)

    def _scale(self, num_tokens: int) -> torch.Tensor:
        """What queries are multiplied by, [num_tokens, 1, 1]."""
        is_width = self._kind.width_scale_at == int(self._file.value("block_count"))
        divisor = math.sqrt(self._hidden // self._num_heads if is_width else self._head_size)
        scale = float(self._file.value("attention.scale", 0.0)) or 1.0 / divisor
        growth = float(self._file.value("attention.temperature_scale", 0.0))
        original = float(self._file.value("rope.scaling.original_context_length", 1.0))
        positions = torch.arange(num_tokens)[:, None, None]
        return scale * (1.0 + growth * torch.log(torch.floor(positions / original) + 1.0))

    def _window(self, layer: int) -> int:
        """Tokens that a layer sees; 0: all."""
        window = int(self._file.value("attention.sliding_window", self._kind.window))
        pattern = self._file.values("attention.sliding_window_pattern")
        if isinstance(pattern, list):
            return window if pattern[layer] else 0
        period = int(pattern if pattern is not None else self._kind.window_period)
        return 0 if period and layer % period == period - 1 else window

    def _rotates(self, layer: int, window: int) -> bool:
        if self._kind.rotates_in_windows_alone:
            return window > 0 or not self._file.value("attention.sliding_window", 0)
        every = self._kind.rotates_not_every
        return self._kind.rotates and not (every and (layer + 1) % every == 0)

    def _mlp(self, h: torch.Tensor, prefix: str) -> torch.Tensor:
        activation = _ACTIVATIONS[self._kind.activation]
        up = self._linear(h, f"{prefix}ffn_up")
        if self._file.has(f"{prefix}ffn_gate.weight"):
            up = activation(self._linear(h, f"{prefix}ffn_gate")) * up
        elif up.shape[-1] > int(self._file.value("feed_forward_length")):
            gate, up = up.chunk(2, dim=-1)
            up = activation(gate) * up
        else:
            up = activation(up)
        return self._linear(up, f"{prefix}ffn_down")

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = x @ self._file.read(f"{name}.weight").T
        return y + self._file.read(f"{name}.bias") if self._file.has(f"{name}.bias") else y

    def _norm(self, x: torch.Tensor, name: str, *, is_optional: bool = False) -> torch.Tensor:
        """Over the last axis; without weights where the architecture has none at all, and not where it has no norm."""
        if not self._file.has(f"{name}.weight") and (is_optional or self._file.has("output_norm.weight")):
            return x
        return self._file.normed(x, name, is_layer_norm=self._kind.is_layer_norm)


def _capped(x: torch.Tensor, limit: float) -> torch.Tensor:
    return torch.tanh(x / limit) * limit if limit else x
