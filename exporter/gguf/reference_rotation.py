"""The rotary embedding of a GGUF file by its own fields, as llama.cpp turns heads; for the second reading alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .reference_families import Computation
    from .reference_file import ReferenceFile

_LONGEST_RAMP = 0.001  # ggml's least width of yarn's ramp


class Rotation:
    """Of the layers with a window or of the others; turns heads [num_tokens, count, head size]."""

    def __init__(
        self, file: ReferenceFile, kind: Computation, head_size: int, num_tokens: int, *, has_window: bool
    ) -> None:
        self._file, self._pairs = file, kind.rotates_pairs
        is_local = has_window and (kind.local_base > 0 or kind.scales_full_attention_alone)
        self._width = int(file.value("rope.dimension_count", head_size))
        base = float(file.value("rope.freq_base", 10000.0))
        if is_local:
            self._width = int(file.value("rope.dimension_count_swa", self._width))
            base = float(file.value("rope.freq_base_swa", kind.local_base or base))
        frequencies = base ** (-torch.arange(0, self._width, 2, dtype=torch.float64) / self._width)
        magnitude = 1.0
        if not is_local:
            frequencies = self._divided(frequencies, num_tokens)
            frequencies, magnitude = self._scaled(frequencies, base)
        angles = torch.arange(num_tokens, dtype=torch.float64)[:, None] * frequencies
        self._cos = (angles.cos() * magnitude).float()[:, None]
        self._sin = (angles.sin() * magnitude).float()[:, None]

    def __call__(self, heads: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        turned, rest = heads[..., : self._width], heads[..., self._width :]
        if self._pairs:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack(self._turned(a, b), dim=-1).flatten(-2)
        else:
            turned = torch.cat(self._turned(*turned.chunk(2, dim=-1)), dim=-1)
        return torch.cat([turned, rest], dim=-1)

    def _turned(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a * self._cos - b * self._sin, a * self._sin + b * self._cos

    def _divided(self, frequencies: torch.Tensor, num_tokens: int) -> torch.Tensor:
        if self._file.has("rope_freqs.weight"):
            return frequencies / self._file.read("rope_freqs.weight").double()
        if self._file.has("rope_factors_long.weight"):
            is_long = num_tokens > int(self._file.value("rope.scaling.original_context_length"))
            return frequencies / self._file.read(f"rope_factors_{'long' if is_long else 'short'}.weight").double()
        return frequencies

    def _scaled(self, frequencies: torch.Tensor, base: float) -> tuple[torch.Tensor, float]:
        kind = self._file.value("rope.scaling.type", "linear")
        factor = float(self._file.value("rope.scaling.factor", self._file.value("rope.scale_linear", 1.0)) or 1.0)
        factor = 1.0 if kind == "none" else factor
        stated = float(self._file.value("rope.scaling.attn_factor", 1.0))
        if kind != "yarn":
            return frequencies / factor, stated
        context = float(self._file.value("rope.scaling.original_context_length"))
        turns = [
            self._file.value(f"rope.scaling.yarn_beta_{name}", beta) for name, beta in (("fast", 32.0), ("slow", 1.0))
        ]
        width = self._width
        low, high = (width * math.log(context / (count * 2 * math.pi)) / (2 * math.log(base)) for count in turns)
        low, high = max(0.0, math.floor(low)), min(width - 1.0, math.ceil(high))
        ramp = (torch.arange(width // 2, dtype=torch.float64) - low) / max(_LONGEST_RAMP, high - low)
        kept = 1.0 - ramp.clamp(0.0, 1.0)
        all_dims = float(self._file.value("rope.scaling.yarn_log_multiplier", 0.0))
        magnitude = stated * (1.0 + 0.1 * math.log(factor)) / (1.0 + 0.1 * all_dims * math.log(factor))
        return frequencies / factor * (1.0 - kept) + frequencies * kept, magnitude
