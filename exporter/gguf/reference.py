"""A GGUF model's logits by another way than the exporter's: for the parity check, so that it sees faults of the reader.

Metadata and values come from the gguf package, which is llama.cpp's own. The computation is llama.cpp's, on the tensors
as they lie in the file: rows of q and k are not put in another order, and the rotation is of the file's own fields. No
code is shared with the modules beside this one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
_ROTATES_PAIRS = {"llama": True, "qwen2": False, "qwen3": False}  # the architectures that are known here
_LONGEST_RAMP = 0.001  # ggml's least width of yarn's ramp


class GgufReference:
    """The model of a GGUF file or of all parts of a split one; `parts` in their order."""

    def __init__(self, parts: Sequence[Path]) -> None:
        readers = [gguf.GGUFReader(part) for part in parts]
        self._fields = readers[0].fields
        self._architecture = str(self._fields["general.architecture"].contents())
        self._tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}

    @staticmethod
    def knows(architecture: str) -> bool:
        """Whether the computation of an architecture is written down here."""
        return architecture in _ROTATES_PAIRS

    def logits(self, ids: Sequence[int]) -> Array:
        """Logits f32 [num_tokens, vocab_size] of one causal pass."""
        with torch.no_grad():
            x = self._read("token_embd.weight")[torch.tensor(ids)]
            rotation = self._rotation(len(ids))
            for layer in range(int(self._value("block_count"))):
                x = self._layer(x, f"blk.{layer}.", rotation)
            name = "output.weight" if "output.weight" in self._tensors else "token_embd.weight"
            return np.asarray((self._norm(x, "output_norm.weight") @ self._read(name).T).numpy())

    def _layer(self, x: torch.Tensor, prefix: str, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        num_heads = int(self._value("attention.head_count"))
        num_kv_heads = int(self._value("attention.head_count_kv", num_heads))
        h = self._norm(x, f"{prefix}attn_norm.weight")
        q = self._heads(h, f"{prefix}attn_q", num_heads)
        k = self._heads(h, f"{prefix}attn_k", num_kv_heads)
        v = self._heads(h, f"{prefix}attn_v", num_kv_heads)
        q, k = (self._rotate(heads, rotation) for heads in (q, k))
        k, v = (heads.repeat_interleave(num_heads // num_kv_heads, dim=1) for heads in (k, v))
        mixed = functional.scaled_dot_product_attention(
            q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True
        )
        x = x + self._linear(mixed.transpose(0, 1).reshape(len(x), -1), f"{prefix}attn_output")
        h = self._norm(x, f"{prefix}ffn_norm.weight")
        gate, up = self._linear(h, f"{prefix}ffn_gate"), self._linear(h, f"{prefix}ffn_up")
        return x + self._linear(functional.silu(gate) * up, f"{prefix}ffn_down")

    def _heads(self, h: torch.Tensor, name: str, count: int) -> torch.Tensor:
        """[num_tokens, count, head size], normed where the file has a norm of heads."""
        heads = self._linear(h, name).reshape(len(h), count, -1)
        return self._norm(heads, f"{name}_norm.weight") if f"{name}_norm.weight" in self._tensors else heads

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = x @ self._read(f"{name}.weight").T
        return y + self._read(f"{name}.bias") if f"{name}.bias" in self._tensors else y

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        epsilon = float(self._value("attention.layer_norm_rms_epsilon"))
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * self._read(name)

    def _rotate(self, heads: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        cos, sin = rotation
        if _ROTATES_PAIRS[self._architecture]:
            a, b = heads[..., 0::2], heads[..., 1::2]
            return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
        a, b = heads.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def _rotation(self, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [num_tokens, 1, rotary size / 2]."""
        head_size = int(self._value("embedding_length")) // int(self._value("attention.head_count"))
        width = int(self._value("attention.key_length", head_size))
        base = float(self._value("rope.freq_base", 10000.0))
        frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        if "rope_freqs.weight" in self._tensors:
            frequencies = frequencies / self._read("rope_freqs.weight").double()
        frequencies, magnitude = self._scaled(frequencies, base, width)
        angles = torch.arange(num_tokens, dtype=torch.float64)[:, None] * frequencies
        return (angles.cos() * magnitude).float()[:, None], (angles.sin() * magnitude).float()[:, None]

    def _scaled(self, frequencies: torch.Tensor, base: float, width: int) -> tuple[torch.Tensor, float]:
        kind = self._value("rope.scaling.type", "none")
        factor = float(self._value("rope.scaling.factor", self._value("rope.scale_linear", 1.0)) or 1.0)
        if kind != "yarn":
            return frequencies / factor, 1.0
        context = float(self._value("rope.scaling.original_context_length"))
        turns = (self._value("rope.scaling.yarn_beta_fast", 32.0), self._value("rope.scaling.yarn_beta_slow", 1.0))
        low, high = (width * math.log(context / (count * 2 * math.pi)) / (2 * math.log(base)) for count in turns)
        low, high = max(0.0, math.floor(low)), min(width - 1.0, math.ceil(high))
        ramp = (torch.arange(width // 2, dtype=torch.float64) - low) / max(_LONGEST_RAMP, high - low)
        kept = 1.0 - ramp.clamp(0.0, 1.0)
        magnitude = float(self._value("rope.scaling.attn_factor", 1.0)) * (1.0 + 0.1 * math.log(factor))
        return frequencies / factor * (1.0 - kept) + frequencies * kept, magnitude

    def _value(self, key: str, default: Any = None) -> Any:
        field = self._fields.get(f"{self._architecture}.{key}")
        found = default if field is None else field.contents()
        return found[0] if isinstance(found, list) else found

    def _read(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        values = np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        return torch.from_numpy(values.reshape([int(axis) for axis in reversed(tensor.shape)]))
