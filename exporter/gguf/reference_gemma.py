"""What Gemma 3n and 4 compute beside attention and MLP, as llama.cpp does; for the second reading alone.

Streams are f32 [num_streams, num_tokens, hidden]; the active one goes through a layer, the others are predicted of all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .reference_file import ReferenceFile

    Step = Callable[[torch.Tensor], torch.Tensor]


def inputs_of_layers(file: ReferenceFile, ids: Sequence[int], x: torch.Tensor) -> torch.Tensor | None:
    """What each layer gets of the tokens by itself, [num_layers, num_tokens, width]; None: nothing."""
    if not file.has("per_layer_token_embd.weight"):
        return None
    width = int(file.value("embedding_length_per_layer_input"))
    looked_up = file.look_up("per_layer_token_embd.weight", ids) * math.sqrt(width)
    projected = file.linear(x, "per_layer_model_proj") / math.sqrt(x.shape[-1])
    projected = projected.reshape(len(ids), -1, width)
    projected = file.normed(projected, "per_layer_proj_norm", is_layer_norm=False)
    return ((projected + looked_up.reshape(projected.shape)) / math.sqrt(2.0)).transpose(0, 1)


def of_layer_input(file: ReferenceFile, prefix: str, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """What a layer's own input adds to a stream."""
    gate = functional.gelu(file.linear(x, f"{prefix}inp_gate"), approximate="tanh")
    return file.normed(file.linear(gate * given, f"{prefix}proj"), f"{prefix}post_norm", is_layer_norm=False)


def spread(file: ReferenceFile, x: torch.Tensor) -> torch.Tensor:
    """One stream -> all."""
    others = [_as_long_as(x, x @ matrix.T) for matrix in file.read("altup_proj.weight")]
    return torch.stack([x, *others])


def merged(file: ReferenceFile, streams: torch.Tensor) -> torch.Tensor:
    """All streams -> one, after the last layer."""
    active = int(file.value("altup.active_idx", 0))
    matrices = file.read("altup_unembd_proj.weight")
    others = [
        _as_long_as(streams[active], stream @ matrix.T) for stream, matrix in zip(streams[1:], matrices, strict=True)
    ]
    return torch.stack([streams[0], *others]).mean(dim=0)


def _as_long_as(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y * (x.square().sum(-1, keepdim=True).sqrt() / y.square().sum(-1, keepdim=True).sqrt())


def run_layer(
    file: ReferenceFile,
    prefix: str,
    streams: torch.Tensor,
    given: torch.Tensor,
    steps: tuple[Step, Step],
) -> torch.Tensor:
    """A layer of Gemma 3n. `steps`: normed attention of a normed stream, and the normed MLP of one."""
    attend, change = steps
    active = int(file.value("altup.active_idx", 0))
    count = len(streams)
    weights = file.linear(_routes(file, prefix, streams[active]), f"{prefix}altup_predict_coef")
    weights = weights.reshape(-1, count, count)  # [num_tokens, to, from]
    predicted = streams + torch.einsum("tab,bth->ath", weights, streams)
    h = file.normed(predicted[active], f"{prefix}attn_norm", is_layer_norm=False)
    low_rank = file.linear(file.linear(h, f"{prefix}laurel_l"), f"{prefix}laurel_r")
    laurel = h + file.normed(low_rank, f"{prefix}laurel_post_norm", is_layer_norm=False)
    x = (attend(h) + predicted[active] + laurel) / math.sqrt(2.0)
    x = x + change(file.normed(x, f"{prefix}ffn_norm", is_layer_norm=False))
    weights = file.linear(_routes(file, prefix, x), f"{prefix}altup_correct_coef") + 1.0
    corrected = predicted + weights.T[..., None] * (x - predicted[active])
    first = corrected[active] * file.read(f"{prefix}altup_correct_scale.weight")
    added = of_layer_input(file, prefix, first, given)
    return torch.cat([corrected[:1], corrected[1:] + added])


def _routes(file: ReferenceFile, prefix: str, x: torch.Tensor) -> torch.Tensor:
    normed = file.normed(x, f"{prefix}altup_router_norm", is_layer_norm=False) / x.shape[-1]
    return torch.tanh(file.linear(normed, f"{prefix}altup_router"))


def sparse(file: ReferenceFile, layer: int, gate: torch.Tensor) -> torch.Tensor:
    """Gates above a number of deviations over their mean, less that; all, where the file states no such number.

    llama.cpp divides by one less for the deviation; models were trained with this.
    """
    scales = file.values("activation_sparsity_scale")
    if scales is None or math.isinf(scales[layer]):
        return gate
    cut = gate.mean(-1, keepdim=True) + gate.std(-1, keepdim=True, unbiased=False) * scales[layer]
    return functional.relu(gate - cut)
