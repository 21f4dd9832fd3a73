"""Heads as their papers and layouts define them, in torch; nothing is shared with the exporter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

Tensors = dict[str, Any]


def rms_norm(x: Tensor, weight: Tensor | float, epsilon: float) -> Tensor:
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + epsilon) * weight


def with_streams(state: Tensor, streams: Sequence[Tensor], tensors: Tensors, config: Tensors) -> Tensor:
    """What Medusa heads and speculators with taps read: their matrix of the streams into some layers is added."""
    if "stream_taps" not in config:
        return state
    joined = torch.cat([streams[tap] for tap in config["stream_taps"]], dim=-1)
    prefix = "speculator." if "n_predict" in config else ""
    return state + joined @ tensors[f"{prefix}streams.weight"].T


def medusa_logits(state: Tensor, tensors: Tensors, head: int, num_blocks: int, shared: Tensor) -> Tensor:
    """State after the target's final norm [rows, hidden] -> [rows, vocabulary]."""
    for block in range(num_blocks):
        weight, bias = (tensors[f"{head}.{block}.linear.{part}"] for part in ("weight", "bias"))
        state = state + functional.silu(state @ weight.T + bias)
    return state @ tensors.get(f"{head}.{num_blocks}.weight", shared).T


def mlp_stages(state: Tensor, tokens: Tensor, tensors: Tensors, config: Tensors) -> list[tuple[Tensor, Tensor]]:
    """(state, logits) of each stage; tokens [rows, stages] are chosen beforehand."""
    num_stages, inner = config["n_predict"], config["inner_dim"]
    state_weight = 2 ** (-1 / (2 * num_stages))
    token_weight = math.sqrt((1 - state_weight**2) * inner / 2)
    if config["scale_input"]:
        state = rms_norm(state, 1.0, 1e-6) / math.sqrt(2)
    results = []
    for stage in range(num_stages):
        own = 0 if config["tie_weights"] else stage
        proj = min(stage, 1) if config["tie_weights"] else stage
        token = tensors[f"speculator.emb.{own}.weight"][tokens[:, stage]]
        state = state @ tensors[f"speculator.proj.{proj}.weight"].T + token_weight / state_weight * token
        scale, shift = (tensors[f"speculator.ln.{own}.{part}"] for part in ("weight", "bias"))
        state = functional.gelu(rms_norm(state, scale, 1e-6) + shift)
        results.append((state, state @ tensors[f"speculator.head.{own}.weight"].T))
    return results


def eagle(
    tokens: Tensor, state: Tensor, tensors: Tensors, config: Tensors, *, embedding: Tensor, lm_head: Tensor
) -> Any:
    """EAGLE-1: tokens [rows] and states after the target's final norm [rows, hidden] -> (next states, logits)."""
    joined = torch.cat([tensors.get("embed_tokens.weight", embedding)[tokens], state], dim=1)
    x = joined @ tensors["fc.weight"].T + tensors.get("fc.bias", torch.zeros(1))
    result = _after_attention(x, x, tensors, "layers.0", config)
    return result, result @ lm_head.T


def eagle3_features(streams: list[Tensor], tensors: Tensors) -> Tensor:
    return torch.cat(streams, dim=1) @ tensors["fc.weight"].T


def eagle3(tokens: Tensor, state: Tensor, tensors: Tensors, config: Tensors, *, normed_residual: bool = False) -> Any:
    """EAGLE-3: tokens [rows] and features [rows, hidden] -> (next features, logits of the head's own ids).

    normed_residual: the stream around the attention is the normed state (speculators' norm_before_residual).
    """
    epsilon = config["rms_norm_eps"]
    token = rms_norm(tensors["embed_tokens.weight"][tokens], tensors["midlayer.input_layernorm.weight"], epsilon)
    normed = rms_norm(state, tensors["midlayer.hidden_norm.weight"], epsilon)
    x, residual = torch.cat([token, normed], dim=1), normed if normed_residual else state
    result = _after_attention(x, residual, tensors, "midlayer", config)
    return result, rms_norm(result, tensors["norm.weight"], epsilon) @ tensors["lm_head.weight"].T


def mtp(  # noqa: PLR0917 - as eagle
    token: Tensor, state: Tensor, tensors: Tensors, config: Tensors, layout: Any, n: int
) -> tuple[Tensor, Tensor]:
    """A multi-token prediction layer: embeddings of tokens and states after the target's final norm, each
    [rows, hidden] -> (what the next step takes for states, what the output layer reads).

    layout: names of the parts, in which {n} is the number of the target's layers.
    """
    names = {key: getattr(layout, key).format(n=n) for key in ("joint", "layer", "final_norm")}
    epsilon = config["rms_norm_eps"]
    parts = [
        rms_norm(x, tensors[f"{norm.format(n=n)}.weight"], epsilon)
        for x, norm in ((token, layout.embedding_norm), (state, layout.state_norm))
    ]
    x = torch.cat(parts[::-1] if layout.state_first else parts, dim=1) @ tensors[f"{names['joint']}.weight"].T
    layer = names["layer"].removesuffix(".")
    result = _after_attention(
        rms_norm(x, tensors[f"{layer}.input_layernorm.weight"], epsilon), x, tensors, layer, config
    )
    normed = rms_norm(result, tensors[f"{names['final_norm']}.weight"], epsilon)
    return normed if layout.passes_normed else result, normed


def _after_attention(x: Tensor, residual: Tensor, tensors: Tensors, layer: str, config: Tensors) -> Tensor:
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    part = {name: tensors[f"{layer}.self_attn.{name}_proj.weight"] for name in ("q", "k", "v", "o")}
    dim = part["q"].shape[0] // heads
    q, k, v = (
        (x @ part[name].T + tensors.get(f"{layer}.self_attn.{name}_proj.bias", torch.zeros(1))).reshape(len(x), -1, dim)
        for name in ("q", "k", "v")
    )
    if f"{layer}.self_attn.q_norm.weight" in tensors:
        q, k = (
            rms_norm(y, tensors[f"{layer}.self_attn.{name}_norm.weight"], config["rms_norm_eps"])
            for name, y in (("q", q), ("k", k))
        )
    q, k = _rotate(q, config["rope_theta"]), _rotate(k, config["rope_theta"])
    k, v = (y.repeat_interleave(heads // kv_heads, dim=1) for y in (k, v))  # [rows, heads, dim]
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(dim)
    later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(later, -math.inf), dim=-1)
    y = residual + torch.einsum("hqk,khd->qhd", weights, v).flatten(1) @ part["o"].T
    normed = rms_norm(y, tensors[f"{layer}.post_attention_layernorm.weight"], config["rms_norm_eps"])
    gate, up, down = (tensors[f"{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
    return y + (functional.silu(normed @ gate.T) * (normed @ up.T)) @ down.T


def _rotate(x: Tensor, theta: float) -> Tensor:
    """Rotates the two halves of a head by position times frequency; row r stands at position r."""
    half = x.shape[-1] // 2
    angles = torch.arange(len(x))[:, None] * theta ** (-torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
