"""Pass 5: q, k and v projections, head norms, rotary and attention become one Linear and one PagedAttention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter import contract

from .linear import linear_node, parameters_of
from .match import describe, input_of, insert_before, producer, refuse, replace, static_shape

if TYPE_CHECKING:
    from .plan import Plan


@dataclass(frozen=True, slots=True)
class _Branch:
    """The way of q, k or v from its projection to the attention."""

    projection: ir.Node
    num_heads: int
    head_dim: int
    rotated: bool
    norm: ir.Node | None


def fuse_attention(model: ir.Model, plan: Plan, shared: dict[str, ir.Value]) -> list[ir.Node]:
    """Attention(q, k, v) -> PagedAttention(Linear(x, qkv), ...); returns the new nodes in layer order."""
    fused = []
    for node in list(model.graph):
        if node.op_type == "Attention":
            q, k, v = (_branch(node, index) for index in range(3))
            _check(node, q, k, v)
            packed = _qkv(node, (q, k, v), plan)
            new = _paged_attention(node, (q, k, v), packed.outputs[0], plan, shared)
            replace(node, new)
            fused.append(new)
    return fused


def _branch(attention: ir.Node, index: int) -> _Branch:
    """Walks up: [Rotary] <- Transpose(0, 2, 1, 3) <- [RMSNorm] <- Reshape(1, -1, heads, head_dim) <- Projection."""
    name, value = ("query", "key", "value")[index], input_of(attention, index)
    rotary = producer(value, "Rotary")
    value = input_of(rotary, 0) if rotary is not None else value
    transpose = producer(value, "Transpose")
    if transpose is None or list(transpose.attributes["perm"].as_ints()) != [0, 2, 1, 3]:
        raise refuse(attention, f"its {name} heads come from {describe(value)}, not from a plain head split")
    value = input_of(transpose, 0)
    norm = producer(value, "RMSNorm")
    value = input_of(norm, 0) if norm is not None else value
    reshape = producer(value, "Reshape")
    projection = producer(reshape.inputs[0], "Projection") if reshape is not None else None
    if reshape is None or projection is None:
        raise refuse(attention, f"its {name} comes from {describe(value)}, not from a projection split into heads")
    *_, num_heads, head_dim = static_shape(reshape.outputs[0])
    if num_heads is None or head_dim is None:
        raise refuse(attention, f"the number and size of its {name} heads are not constant")
    return _Branch(projection, num_heads, head_dim, rotary is not None, norm)


def _check(node: ir.Node, q: _Branch, k: _Branch, v: _Branch) -> None:
    if not (q.rotated and k.rotated) or v.rotated:
        raise refuse(node, "query and key must pass a rotary embedding over the whole head, and value must not")
    if v.norm is not None or (q.norm is None) != (k.norm is None):
        raise refuse(node, "head norms must apply to query and key both, and not to value")
    if not q.head_dim == k.head_dim == v.head_dim or k.num_heads != v.num_heads or q.num_heads % k.num_heads:
        raise refuse(node, "query, key and value heads do not form groups of one head size")
    if not q.projection.inputs[0] is k.projection.inputs[0] is v.projection.inputs[0]:
        raise refuse(node, "query, key and value are not projections of the same input")
    if q.norm is not None and k.norm is not None and _epsilon(q.norm) != _epsilon(k.norm):
        raise refuse(node, "query and key norms differ in epsilon")


def _epsilon(norm: ir.Node) -> float:
    return norm.attributes["epsilon"].as_float()


def _qkv(node: ir.Node, branches: tuple[_Branch, ...], plan: Plan) -> ir.Node:
    parts = [parameters_of(branch.projection) for branch in branches]
    biases = [bias for _, bias in parts if bias is not None]
    if len(biases) not in (0, len(parts)):
        raise refuse(node, "some of query, key and value have a bias and some have none")
    layer = node.attributes["layer"].as_int()
    weight = plan.weight(f"layers.{layer}.qkv", [weight for weight, _ in parts], "linear")
    bias = plan.vector(f"layers.{layer}.qkv_bias", biases) if biases else None
    packed = linear_node(plan, weight, input_of(branches[0].projection, 0), bias)
    insert_before(node, packed)
    return packed


def _paged_attention(
    node: ir.Node, branches: tuple[_Branch, ...], qkv: ir.Value, plan: Plan, shared: dict[str, ir.Value]
) -> ir.Node:
    q, k, _ = branches
    layer = node.attributes["layer"].as_int()
    norms: list[ir.Value | None] = [None, None]
    if q.norm is not None and k.norm is not None:
        norms = [
            plan.vector(f"layers.{layer}.q_norm", [input_of(q.norm, 1)]),
            plan.vector(f"layers.{layer}.k_norm", [input_of(k.norm, 1)]),
        ]
    caches = [ir.Value(name=contract.key_cache(layer)), ir.Value(name=contract.value_cache(layer))]
    inputs = [shared[name] for name in contract.ATTENTION_INPUTS]
    attributes = {
        "num_heads": q.num_heads,
        "num_kv_heads": k.num_heads,
        "head_dim": q.head_dim,
        "rotary_dim": q.head_dim,
        "interleaved": 0,
        "scale": node.attributes["scale"].as_float(),
        "sliding_window": node.attributes["sliding_window"].as_int(),
        "softcap": node.attributes["softcap"].as_float(),
        "norm_epsilon": _epsilon(q.norm) if q.norm is not None else 0.0,
    }
    return ir.node(
        "PagedAttention",
        [qkv, *inputs, plan.value("cos"), plan.value("sin"), *caches, *norms],
        attributes,
        domain=contract.DOMAIN,
    )
