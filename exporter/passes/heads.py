"""Of pass 5: query, key and value on their way to attention, and what of it attention itself does."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from .match import input_of, insert_before, producer, refuse
from .rotary import Rotary, rotary_of
from .row_graph import row_dims

if TYPE_CHECKING:
    from .layout import Rows
    from .plan import Plan


@dataclass(slots=True)
class Heads:
    """Query, key or value on the way to attention."""

    value: ir.Value  # [num_tokens, num_heads, head_dim], before what attention itself does
    num_heads: int
    head_dim: int
    rotary: Rotary | None = None
    norm: ir.Node | None = None
    rows: Rows | None = None


def heads_of(node: ir.Node, index: int) -> Heads:
    """An input of a traced attention, as it comes."""
    value = input_of(node, index)
    num_heads, head_dim = row_dims(value)
    return Heads(value, num_heads, head_dim)


def check_sizes(node: ir.Node, q: Heads, k: Heads, v: Heads) -> None:
    """Refuses heads that are not groups of queries with a key and a value each."""
    if q.head_dim != k.head_dim or k.num_heads != v.num_heads or q.num_heads % k.num_heads or v.head_dim > k.head_dim:
        raise refuse(node, "query, key and value heads do not form groups of one head size")


def find_rotation(node: ir.Node, q: Heads, k: Heads, plan: Plan) -> None:
    """The rotation of query and key, where attention has it, moves into it."""
    of_q, of_k = rotary_of(q.value, plan), rotary_of(k.value, plan)
    if of_q is None and of_k is not None:
        of_q = _rotary_of_scaled(node, q.value, plan)
    if of_q is not None and of_k is not None and of_q.way == of_k.way:
        q.rotary, q.value = of_q, of_q.x
        k.rotary, k.value = of_k, of_k.x


def _rotary_of_scaled(node: ir.Node, heads: ir.Value, plan: Plan) -> Rotary | None:
    """The rotation of heads that are multiplied by a number of their position after it; before it is the same."""
    product = producer(heads, "Mul")
    if product is None:
        return None
    for index in (0, 1):
        factor, rotated = input_of(product, index), input_of(product, 1 - index)
        if math.prod(row_dims(factor)) == 1 and row_dims(rotated) == row_dims(heads):
            found = rotary_of(rotated, plan)
            if found is None or row_dims(found.x) != row_dims(heads):
                continue
            scaled = ir.node("Mul", [found.x, factor])
            scaled.outputs[0].shape = found.x.shape
            insert_before(node, scaled)
            return dataclasses.replace(found, x=scaled.outputs[0])
    return None


def find_norms(q: Heads, k: Heads, v: Heads, plan: Plan) -> None:
    """Norms of each head by itself with one weight for all, right before the rotation; of values, with or without."""
    q_norm, k_norm = norm_of(q, plan), norm_of(k, plan)
    if q_norm is None or k_norm is None or epsilon_of(q_norm) != epsilon_of(k_norm):
        return
    for heads, norm in ((q, q_norm), (k, k_norm)):
        heads.norm, heads.value = norm, input_of(norm, 0)
    v_norm = norm_of(v, plan)
    if v_norm is not None and epsilon_of(v_norm) == epsilon_of(q_norm) and v.head_dim == q.head_dim:
        v.norm, v.value = v_norm, input_of(v_norm, 0)


def norm_of(heads: Heads, plan: Plan) -> ir.Node | None:
    """The norm of each head with one weight for all that makes the value; None: it is made otherwise."""
    norm = producer(through_reshapes(heads.value), "RMSNorm")
    if norm is None or row_dims(norm.outputs[0])[-1] != heads.head_dim:
        return None
    return norm if norm.inputs[1] is None or plan.is_pending(norm.inputs[1]) else None


def through_reshapes(value: ir.Value) -> ir.Value:
    """The value before its elements were put in other axes."""
    while (node := producer(value, "Reshape")) is not None:
        value = input_of(node, 0)
    return value


def epsilon_of(norm: ir.Node) -> float:
    """What a norm adds before the root."""
    return norm.attributes["epsilon"].as_float()


def factor_of(heads: Heads) -> float:
    """A number that all queries or keys are multiplied with, which a norm behind it would take away."""
    return heads.rows.factor if heads.rows is not None and heads.norm is None else 1.0
