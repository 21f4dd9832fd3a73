"""Operators that stand for attention and norms while torch traces a model, and the nodes that they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .traced_operator import traced_operator

if TYPE_CHECKING:
    from collections.abc import Callable


@torch.library.custom_op("pilotfish::attention", mutates_args=())
def _attention(  # noqa: PLR0917 - an operator's signature
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layer: int,
    scale: float,
    window: int,
    softcap: float,
    slopes: list[float],  # of ALiBi, one a head; empty: none
    key_biases: torch.Tensor | None,  # [num_tokens, 1, num_heads]: what a score gets by its key's position
    sinks: torch.Tensor | None,  # [num_heads]: a score of no key
) -> torch.Tensor:
    raise NotImplementedError("only traced, never run")


@_attention.register_fake
def _(query: torch.Tensor, _key: torch.Tensor, value: torch.Tensor, *_attributes: object) -> torch.Tensor:
    batch, heads, tokens, _ = query.shape
    return query.new_empty(batch, tokens, heads, value.shape[3])


@torch.library.custom_op("pilotfish::rms_norm", mutates_args=())
def _rms_norm(x: torch.Tensor, weight: torch.Tensor | None, epsilon: float) -> torch.Tensor:
    raise NotImplementedError("only traced, never run")


@_rms_norm.register_fake
def _(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x)


_FLOATS = ["tensor(float)"]
_ATTENTION_OP = traced_operator(
    "Attention",
    _FLOATS,
    ("q", "k", "v"),
    ("key_biases", "sinks"),
    layer="INT",
    scale="FLOAT",
    sliding_window="INT",
    softcap="FLOAT",
    slopes="FLOATS",
)
_NORM_OP = traced_operator("RMSNorm", _FLOATS, ("x",), ("weight",), epsilon="FLOAT")
_PROJECTION_OP = traced_operator("Projection", _FLOATS, ("x", "weight"), ("bias",))


def _translate_attention(*arguments: Any) -> Any:
    query, key, value, layer, scale, window, softcap, slopes, *special = arguments
    options = {"slopes": list(slopes)} if slopes else {}
    while special and special[-1] is None:
        del special[-1]
    attributes = {"layer": layer, "scale": scale, "sliding_window": window, "softcap": softcap}
    return _ATTENTION_OP(query, key, value, *special, **attributes, **options)


def _translate_norm(x, weight, epsilon):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return _NORM_OP(x, epsilon=epsilon) if weight is None else _NORM_OP(x, weight, epsilon=epsilon)


def _translate_linear(x, weight, bias=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return _PROJECTION_OP(x, weight) if bias is None else _PROJECTION_OP(x, weight, bias)


OWN_TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.pilotfish.attention.default: _translate_attention,
    torch.ops.pilotfish.rms_norm.default: _translate_norm,
    torch.ops.aten.linear.default: _translate_linear,
}
