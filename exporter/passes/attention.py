"""Pass 5: every attention becomes one PagedAttention; rotation, head norms and projections move in where they fit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from pilotfish.exporter import contract

from .heads import (
    Heads,
    check_sizes,
    epsilon_of,
    factor_of,
    find_norms,
    find_rotation,
    heads_of,
    norm_of,
    through_reshapes,
)
from .layout import Rows, in_order, joined, rows_of
from .linear import biases_of, linear_node, parameters_of
from .match import input_of, insert_before, refuse, scope
from .rotary import rotary_of, table_of
from .row_graph import TOKENS, row_dims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Plan

_UNROTATED = 4  # columns that the tables of layers without positions rotate by nothing
_NAMES = ("query", "key", "value")


def fuse_attention(model: ir.Model, plan: Plan, shared: dict[str, ir.Value]) -> list[ir.Node]:
    """Attention(q, k, v) -> PagedAttention(Linear(x, qkv), ...); returns the new nodes in layer order."""
    fused: list[ir.Node] = []
    kept: dict[tuple[ir.Value, ir.Value], _Cache] = {}
    attentions = [node for node in model.graph if node.op_type == "Attention"]
    for node in sorted(attentions, key=lambda node: node.attributes["layer"].as_int()):
        q, k, v = (heads_of(node, index) for index in range(3))
        check_sizes(node, q, k, v)
        cache = kept.get((k.value, v.value))
        is_shared = cache is not None
        if cache is None:
            cache = kept[k.value, v.value] = _Cache.numbered(len(kept))
            packed = _own_qkv(node, (q, k, v), plan)
            cache.factor = factor_of(k)
        else:
            packed = _queries(node, q, plan)
        scale = node.attributes["scale"].as_float() * factor_of(q) * cache.factor
        new = _paged_attention(node, (q, k, v), packed, scale, plan, shared, cache, is_shared=is_shared)
        insert_before(node, new)
        new.outputs[0].type = node.outputs[0].type
        new.outputs[0].shape = ir.Shape([TOKENS, q.num_heads * q.head_dim])
        _replace_output(node, new, v, plan)
        fused.append(new)
    return fused


@dataclass(slots=True)
class _Cache:
    """Where a layer's keys and values are kept; layers with the same ones share it."""

    keys: ir.Value
    values: ir.Value
    factor: float = 1.0  # that scores are multiplied with in place of the keys

    @classmethod
    def numbered(cls, number: int) -> _Cache:
        """The next one of a graph."""
        return cls(ir.Value(name=contract.key_cache(number)), ir.Value(name=contract.value_cache(number)))


def _own_qkv(node: ir.Node, branches: tuple[Heads, Heads, Heads], plan: Plan) -> ir.Value:
    """Queries, keys and values side by side."""
    q, k, v = branches
    find_rotation(node, q, k, plan)
    find_norms(q, k, v, plan)
    for heads in branches:
        heads.rows = rows_of(heads.value)
    return _qkv(node, branches, plan) or _joined_qkv(node, branches, plan)


def _queries(node: ir.Node, q: Heads, plan: Plan) -> ir.Value:
    """Queries alone, of a layer whose keys and values another one has written."""
    q.rotary = rotary_of(q.value, plan)
    q.value = q.value if q.rotary is None else q.rotary.x
    norm = norm_of(q, plan)
    if norm is not None:
        q.norm, q.value = norm, input_of(norm, 0)
    q.rows = rows_of(q.value)
    return _flat_rows(node, "q", q, q.value, plan)


def _qkv(node: ir.Node, branches: tuple[Heads, ...], plan: Plan) -> ir.Value | None:
    """One Linear for all three, if they are rows of projections of one value; None: they are not."""
    parts = [heads.rows for heads in branches]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or len({part.x for part in found}) != 1 or found[0].x is None:
        return None
    if found[2].factor != 1 or branches[2].head_dim != branches[0].head_dim:
        return None
    if any(heads.norm is not None and part.factor != 1 for heads, part in zip(branches, found, strict=True)):
        return None
    return _linear_of(node, found, f"layers.{node.attributes['layer'].as_int()}.qkv", plan)


def _linear_of(node: ir.Node, parts: list[Rows], name: str, plan: Plan) -> ir.Value | None:
    """A Linear that makes the rows of the parts, put before `node`; None: matrices that are not stored alike."""
    projections, numbers = joined(parts)
    if len({parameters_of(item)[2] for item in projections}) != 1:
        return None
    rows = in_order(numbers, projections)
    transposed = parameters_of(projections[0])[2]
    sources = [parameters_of(item)[0] for item in projections]
    weight = plan.weight(name, sources, "linear", rows=rows, transposed=transposed)
    biases = biases_of(projections, plan)
    bias = None if biases is None else plan.vector(f"{name}_bias", biases, rows=rows)
    packed = linear_node(plan, weight, input_of(projections[0], 0), bias)
    packed.outputs[0].shape = ir.Shape([TOKENS, weight.out_features])
    insert_before(node, packed)
    return packed.outputs[0]


def _joined_qkv(node: ir.Node, branches: tuple[Heads, ...], plan: Plan) -> ir.Value:
    """The rows that are computed each in their own way, side by side."""
    plan.unfused.append(f"{scope(node)}: query, key and value are not one projection")
    wide = [_wide(node, heads, branches[0].head_dim, plan) for heads in branches]
    parts = zip("qkv", branches, wide, strict=True)
    values = [_flat_rows(node, name, heads, value, plan) for name, heads, value in parts]
    width = sum(row_dims(value)[0] for value in values)
    join = ir.node("Concat", values, {"axis": -1})
    join.outputs[0].shape = ir.Shape([TOKENS, width])
    insert_before(node, join)
    return join.outputs[0]


def _flat_rows(node: ir.Node, name: str, heads: Heads, value: ir.Value, plan: Plan) -> ir.Value:
    """Heads side by side: as a Linear of their own where they are rows of a projection, else as they are computed."""
    rows = heads.rows
    is_own = rows is not None and rows.x is not None and value is heads.value and len(rows.projections) == 1
    if is_own and rows is not None and (rows.factor == 1 or name != "v") and (rows.factor == 1 or heads.norm is None):
        made = _linear_of(node, [rows], f"layers.{node.attributes['layer'].as_int()}.{name}", plan)
        if made is not None:
            return made
    else:
        heads.rows = None
    return _flat(node, value, heads, plan)


def _flat(node: ir.Node, value: ir.Value, heads: Heads, plan: Plan) -> ir.Value:
    width = heads.num_heads * (row_dims(value)[-1] if value is not heads.value else heads.head_dim)
    value = through_reshapes(value)
    return value if row_dims(value) == (width,) else _reshaped(node, value, (width,), plan)


def _reshaped(node: ir.Node, value: ir.Value, dims: tuple[int, ...], plan: Plan) -> ir.Value:
    new = ir.node("Reshape", [value, plan.integers([0, *dims])])
    new.outputs[0].shape = ir.Shape([TOKENS, *dims])
    insert_before(node, new)
    return new.outputs[0]


def _wide(node: ir.Node, heads: Heads, head_dim: int, plan: Plan) -> ir.Value:
    """Values of smaller heads than the keys', with zeros behind each head."""
    if heads.head_dim == head_dim:
        return heads.value
    value = _reshaped(node, heads.value, (heads.num_heads, heads.head_dim), plan)
    missing = head_dim - heads.head_dim
    if missing > heads.head_dim:
        raise refuse(node, f"its values have {heads.head_dim} columns a head and its keys {head_dim}")
    bounds = [plan.integers([number]) for number in (0, missing, 2, 1)]
    part = ir.node("Slice", [value, *bounds])
    part.outputs[0].shape = ir.Shape([TOKENS, heads.num_heads, missing])
    zeros = ir.node("Sub", [part.outputs[0], part.outputs[0]])
    zeros.outputs[0].shape = part.outputs[0].shape
    join = ir.node("Concat", [value, zeros.outputs[0]], {"axis": -1})
    join.outputs[0].shape = ir.Shape([TOKENS, heads.num_heads, head_dim])
    for new in (part, zeros, join):
        insert_before(node, new)
    return join.outputs[0]


def _replace_output(node: ir.Node, new: ir.Node, v: Heads, plan: Plan) -> None:
    """Attention's result is split into heads for whoever reads it so; without the columns of zeros."""
    num_heads, width = row_dims(node.outputs[0])
    value = new.outputs[0]
    head_dim = row_dims(value)[0] // num_heads
    if head_dim != width:
        value = _reshaped(node, value, (num_heads, head_dim), plan)
        part = ir.node("Slice", [value, *(plan.integers([number]) for number in (0, v.head_dim, 2, 1))])
        part.outputs[0].shape = ir.Shape([TOKENS, num_heads, width])
        insert_before(node, part)
        value = part.outputs[0]
    for use in list(node.outputs[0].uses()):
        reader = use.node
        if reader.op_type == "Reshape" and row_dims(reader.outputs[0]) == row_dims(value):
            ir.convenience.replace_all_uses_with(reader.outputs[0], value)
        else:
            wanted = (
                value if row_dims(value) == (num_heads, width) else _reshaped(node, value, (num_heads, width), plan)
            )
            reader.replace_input_with(use.idx, wanted)


def _paged_attention(  # noqa: PLR0917 - what an attention is made of
    node: ir.Node,
    branches: tuple[Heads, Heads, Heads],
    qkv: ir.Value,
    scale: float,
    plan: Plan,
    shared: dict[str, ir.Value],
    cache: _Cache,
    *,
    is_shared: bool,
) -> ir.Node:
    q, k, _ = branches
    layer = node.attributes["layer"].as_int()
    norms = [
        _norm_weight(heads, f"layers.{layer}.{name}_norm", plan) for name, heads in zip("qkv", branches, strict=True)
    ]
    vectors = [*norms[:2], *_special(node, layer, plan), norms[2]]
    while vectors and vectors[-1] is None:
        del vectors[-1]
    rotary = q.rotary
    tables = plan.unrotated(_UNROTATED // 2) if rotary is None else (rotary.cos, rotary.sin)
    inputs = [shared[name] for name in contract.ATTENTION_INPUTS]
    attributes = {
        "num_heads": q.num_heads,
        "num_kv_heads": k.num_heads,
        "head_dim": q.head_dim,
        "rotary_dim": _UNROTATED if rotary is None else rotary.rotary_dim,
        "interleaved": int(rotary is not None and rotary.interleaved),
        "scale": scale,
        "sliding_window": node.attributes["sliding_window"].as_int(),
        "softcap": node.attributes["softcap"].as_float(),
        "norm_epsilon": epsilon_of(q.norm) if q.norm is not None else 0.0,
        **({"shared_kv": 1} if is_shared else {}),
    }
    return ir.node(
        "PagedAttention",
        [qkv, *inputs, plan.value(tables[0]), plan.value(tables[1]), cache.keys, cache.values, *vectors],
        attributes,
        domain=contract.DOMAIN,
    )


def _norm_weight(heads: Heads, name: str, plan: Plan) -> ir.Value | None:
    """Of the norm that attention itself does; None: there is none."""
    if heads.norm is None:
        return None
    weight = heads.norm.inputs[1]
    ones = f"ones.{heads.head_dim}"
    return plan.vector(ones, [plan.ones(heads.head_dim)]) if weight is None else plan.vector(name, [weight])


def _special(node: ir.Node, layer: int, plan: Plan) -> list[ir.Value | None]:
    """Slopes, biases by key and sinks, where a layer has them."""
    slopes = node.attributes.get("slopes")
    biases, sinks = (*node.inputs[3:], None, None)[:2]
    table = None if biases is None else table_of(through_reshapes(biases), plan)
    if biases is not None and table is None:
        raise refuse(node, "its scores have a bias that more than the key's position decides")
    return [
        None if slopes is None else _stored_slopes(slopes.as_floats(), plan),
        None if table is None else plan.value(table),
        None if sinks is None else plan.vector(f"layers.{layer}.sinks", [sinks]),
    ]


def _stored_slopes(slopes: Sequence[float], plan: Plan) -> ir.Value:
    """One vector for all layers that have the same slopes."""
    numbers = np.asarray(slopes, dtype=np.float32)
    known = (
        name for name in count() if f"slopes.{name}" not in plan.derived or _holds(plan, f"slopes.{name}", numbers)
    )
    name = f"slopes.{next(known)}"
    return plan.vector(name, [plan.filled(name, numbers)])


def _holds(plan: Plan, name: str, numbers: np.ndarray[Any, np.dtype[np.float32]]) -> bool:
    tensor = ir.convenience.get_const_tensor(plan.derived[name])
    return tensor is not None and np.array_equal(tensor.numpy(), numbers)
