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
from .reference_gemma import inputs_of_layers, merged, of_layer_input, run_layer, sparse, spread
from .reference_rotation import Rotation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Step = Callable[[torch.Tensor], torch.Tensor]

Array = np.ndarray[Any, np.dtype[Any]]
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu_squared": lambda x: functional.relu(x).square(),
}
_MAX_ALIBI = 8.0


class GgufReference:
    """The model of a GGUF file or of all parts of a split one; `parts` in their order."""

    def __init__(self, parts: Sequence[Path]) -> None:
        self._file = ReferenceFile(parts)
        self._kind = COMPUTATIONS[self._file.architecture]
        self._num_layers = int(self._file.value("block_count"))
        self._kept: dict[bool, tuple[torch.Tensor, torch.Tensor]] = {}  # last keys and values of layers with a window
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
            given = inputs_of_layers(self._file, ids, x)
            has_streams = self._file.has("altup_proj.weight")
            x = spread(self._file, x) if has_streams else x
            for layer in range(self._num_layers):
                x = self._layer(x, layer, rotations, None if given is None else given[layer])
            x = self._norm(merged(self._file, x) if has_streams else x, "output_norm")
            name = "output" if self._file.has("output.weight") else "token_embd"
            return np.asarray(self._scaled_logits(self._linear(x, name)).numpy())

    def _embedded(self, ids: Sequence[int]) -> torch.Tensor:
        x = self._file.look_up("token_embd.weight", ids)
        if self._file.has("position_embd.weight"):
            x = x + self._file.read("position_embd.weight")[: len(ids)]
        root = math.sqrt(self._hidden) if self._kind.embedding_root else 1.0
        return self._norm(
            x * (root * float(self._file.value("embedding_scale", 1.0))), "token_embd_norm", is_optional=True
        )

    def _scaled_logits(self, logits: torch.Tensor) -> torch.Tensor:
        scale = float(self._file.value("logit_scale", 1.0))
        logits = logits / scale if self._kind.divides_logits else logits * scale
        return _capped(logits, float(self._file.value("final_logit_softcapping", self._kind.final_cap)))

    def _layer(
        self, x: torch.Tensor, layer: int, rotations: dict[bool, Rotation], given: torch.Tensor | None
    ) -> torch.Tensor:
        prefix = f"blk.{layer}."

        def attend(h: torch.Tensor) -> torch.Tensor:
            mixed = self._attention(h, layer, rotations)
            if self._kind.ffn_norm == "post_attention_norm":
                return mixed
            return self._norm(mixed, f"{prefix}post_attention_norm", is_optional=True)

        def change(h: torch.Tensor) -> torch.Tensor:
            return self._norm(self._mlp(h, layer), f"{prefix}post_ffw_norm", is_optional=True)

        if self._file.has(f"{prefix}altup_router.weight") and given is not None:
            return run_layer(self._file, prefix, x, given, (attend, change))
        x = self._plain_layer(x, layer, attend, change)
        if given is not None:
            x = x + of_layer_input(self._file, prefix, x, given)
        scale = f"{prefix}layer_output_scale.weight"
        return x * self._file.read(scale) if self._file.has(scale) else x

    def _plain_layer(self, x: torch.Tensor, layer: int, attend: Step, change: Step) -> torch.Tensor:
        prefix, scale = f"blk.{layer}.", float(self._file.value("residual_scale", 1.0))
        h = self._norm(x, f"{prefix}attn_norm")
        mixed = attend(h)
        ffn_norm = f"{prefix}{self._kind.ffn_norm}"
        if self._file.value("use_parallel_residual", self._kind.is_parallel):
            h = self._norm(x, ffn_norm) if self._file.has(f"{ffn_norm}.weight") else h
            return x + mixed + change(h)
        x = x + mixed * scale
        return x + change(self._norm(x, ffn_norm)) * scale

    def _attention(self, h: torch.Tensor, layer: int, rotations: dict[bool, Rotation]) -> torch.Tensor:
        prefix = f"blk.{layer}."
        window = self._window(layer)
        rotate = rotations[window > 0 and self._kind.window_period > 0] if self._rotates(layer, window) else None
        q, *own = self._query_key_value(h, layer)
        q = self._normed_and_rotated(q, f"{prefix}attn_q", rotate)
        if own:
            k = self._normed_and_rotated(own[0], f"{prefix}attn_k", rotate)
            v = self._file.normed(own[1], "", is_layer_norm=False) if self._kind.norms_values else own[1]
            self._kept[window > 0] = k, v
        k, v = (heads.repeat_interleave(q.shape[1] // heads.shape[1], dim=1) for heads in self._kept[window > 0])
        scores = torch.einsum("qhd,khd->hqk", q * self._scale(len(h)), k)
        scores = _capped(scores, float(self._file.value("attn_logit_softcapping", self._kind.attention_cap)))
        distance = torch.arange(len(h))[:, None] - torch.arange(len(h))
        if self._kind.has_alibi:
            scores = scores - self._slopes()[:, None, None] * distance
        hidden = (distance < 0) | (distance >= window) if window else distance < 0
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, v).reshape(len(h), -1)
        return self._linear(mixed, f"{prefix}attn_output")

    def _slopes(self) -> torch.Tensor:
        """What a score loses for a position, [num_heads]: powers of one number, then every other one of its root."""
        power = 1 << (self._num_heads.bit_length() - 1)
        exponents = [(head + 1) / power for head in range(power)]
        exponents += [(2 * head + 1) / (2 * power) for head in range(self._num_heads - power)]
        return 2.0 ** (-_MAX_ALIBI * torch.tensor(exponents))

    def _query_key_value(self, h: torch.Tensor, layer: int) -> list[torch.Tensor]:
        """Each [num_tokens, heads, head size]; queries alone, where an earlier layer's keys and values are used."""
        prefix, kv_heads = f"blk.{layer}.", self._file.values("attention.head_count_kv")
        kv_heads = kv_heads[layer] if isinstance(kv_heads, list) else self._num_kv_heads
        counts = [self._num_heads, kv_heads, kv_heads]
        shared = int(self._file.value("attention.shared_kv_layers", 0))
        if self._file.has(f"{prefix}attn_qkv.weight"):
            sizes = [count * self._head_size for count in counts]
            parts = torch.split(self._linear(h, f"{prefix}attn_qkv"), sizes, dim=-1)
        elif layer >= self._num_layers - shared:
            parts = (self._linear(h, f"{prefix}attn_q"),)
        else:
            value = "v" if self._file.has(f"{prefix}attn_v.weight") else "k"
            parts = tuple(self._linear(h, f"{prefix}attn_{name}") for name in ("q", "k", value))
        counts = counts[: len(parts)]
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
        is_width = self._kind.width_scale_at == self._num_layers
        divisor = math.sqrt(self._hidden // self._num_heads if is_width else self._head_size)
        scale = self._kind.scale or float(self._file.value("attention.scale", 0.0)) or 1.0 / divisor
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

    def _mlp(self, h: torch.Tensor, layer: int) -> torch.Tensor:
        prefix = f"blk.{layer}."
        activation = _ACTIVATIONS[self._kind.activation]
        up = self._linear(h, f"{prefix}ffn_up")
        if self._file.has(f"{prefix}ffn_gate.weight"):
            up = activation(sparse(self._file, layer, self._linear(h, f"{prefix}ffn_gate"))) * up
        elif up.shape[-1] > int(self._file.value("feed_forward_length")):
            gate, up = up.chunk(2, dim=-1)
            up = activation(gate) * up
        else:
            up = activation(up)
        return self._linear(up, f"{prefix}ffn_down")

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return self._file.linear(x, name)

    def _norm(self, x: torch.Tensor, name: str, *, is_optional: bool = False) -> torch.Tensor:
        """Over the last axis; without weights where the architecture has none at all, and not where it has no norm."""
        if not self._file.has(f"{name}.weight") and (is_optional or self._file.has("output_norm.weight")):
            return x
        return self._file.normed(x, name, is_layer_norm=self._kind.is_layer_norm)


def _capped(x: torch.Tensor, limit: float) -> torch.Tensor:
    return torch.tanh(x / limit) * limit if limit else x
