"""Attention with ALiBi of models that do not ask transformers' registry for one, put so that it does.

ALiBi is a bias on attention's scores: a number of its head times how many positions a key lies before the query.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL_TYPES = ("bloom", "mpt")


def replacements(model_type: str, attend: Callable[..., tuple[torch.Tensor, None]]) -> dict[type, type]:
    """Classes of modules -> those that call `attend`, with the slope of each head."""
    return _bloom(attend) if model_type == "bloom" else _mpt(attend)


def set_slopes(model: torch.nn.Module, model_type: str) -> None:
    """Gives each attention the slopes that the model itself would compute in each pass."""
    module: Any
    for module in model.modules():
        if model_type == "bloom" and hasattr(module, "query_key_value"):
            bloom: Any = import_module("transformers.models.bloom.modeling_bloom")
            module.slopes = tuple(bloom._get_alibi_slopes(module.num_heads, torch.device("cpu")).tolist())  # noqa: SLF001
        elif model_type == "mpt" and hasattr(module, "Wqkv"):
            mpt: Any = import_module("transformers.models.mpt.modeling_mpt")
            last = mpt.build_mpt_alibi_tensor(module.n_heads, 2, device=torch.device("cpu"))[
                :, 0, 0
            ]  # one position away
            module.slopes = tuple((-last).tolist())


def falcon_slopes(num_heads: int, device: torch.device) -> torch.Tensor:
    """What each head's scores get for a position, f32 [num_heads], by operators that a tracer can follow."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = _powers(2 ** -(2 ** -(math.log2(power) - 3)), torch.arange(1, 1 + power, device=device))
    if power == num_heads:
        return slopes
    odd = torch.arange(1, 1 + 2 * (num_heads - power), 2, device=device)
    return torch.cat([slopes, _powers(2 ** -(2 ** -(math.log2(2 * power) - 3)), odd)])


def _powers(base: float, exponents: torch.Tensor) -> torch.Tensor:
    return torch.pow(torch.full((), base, dtype=torch.float32, device=exponents.device), exponents)


def rounded_biases(slopes: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """[num_tokens, 1, num_heads] of positions [num_tokens, 1], in bfloat16 as Falcon's own code has slopes and results.

    They count from the first token on: of distances, the roundings would differ.
    """
    return (slopes.bfloat16() * positions[..., None].bfloat16()).float()


def _bloom(attend: Callable[..., tuple[torch.Tensor, None]]) -> dict[type, type]:
    bloom: Any = import_module("transformers.models.bloom.modeling_bloom")

    class Attention(bloom.BloomAttention):  # type: ignore[misc]
        def forward(
            self, hidden_states: torch.Tensor, residual: torch.Tensor, **_: Any
        ) -> tuple[torch.Tensor, torch.Tensor | None]:
            """[batch, num_tokens, hidden] -> the same, with the residual added."""
            query, key, value = self._reshape(self.query_key_value(hidden_states))
            found, weights = attend(self, query, key, value, None, scaling=self.inv_norm_factor, slopes=self.slopes)
            return residual + self.dense(found.flatten(2)), weights

    class Gelu(bloom.BloomGelu):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Without the backward pass of its own, which no tracer goes through."""
            found: torch.Tensor = bloom.bloom_gelu_forward(x)
            return found

    return {bloom.BloomAttention: Attention, bloom.BloomGelu: Gelu}


def _mpt(attend: Callable[..., tuple[torch.Tensor, None]]) -> dict[type, type]:
    mpt: Any = import_module("transformers.models.mpt.modeling_mpt")

    class Attention(mpt.MptAttention):  # type: ignore[misc]
        def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
            """[batch, num_tokens, hidden] -> the same."""
            fused = self.Wqkv(hidden_states)
            if self.clip_qkv:
                fused = fused.clamp(min=-self.clip_qkv, max=self.clip_qkv)
            heads = [part.unflatten(2, (self.n_heads, self.head_dim)).transpose(1, 2) for part in fused.chunk(3, dim=2)]
            found, weights = attend(self, *heads, None, scaling=self.softmax_scale, slopes=self.slopes)
            return self.out_proj(found.flatten(2)), weights

    class Decoder(mpt.MptModel):  # type: ignore[misc]
        def forward(self, input_ids: torch.Tensor, **_: Any) -> BaseModelOutputWithPastAndCrossAttentions:
            """[batch, num_tokens] -> the states that the output layer reads; without a mask, which attention knows."""
            hidden_states = self.wte(input_ids)
            for block in self.blocks:
                hidden_states = block(hidden_states, position_bias=None, attention_mask=None)[0]
            return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=self.norm_f(hidden_states))

    return {mpt.MptAttention: Attention, mpt.MptModel: Decoder}
