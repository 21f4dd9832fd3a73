"""Pass 11b: Linear nodes that read the same input become one, whose result is cut for the row-wise nodes behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from .duplicates import join_duplicates
from .linear import linear_node
from .match import input_of, insert_before, sweep
from .norm_prologue import NORM_WEIGHT
from .residual import RESIDUAL
from .row_graph import TOKENS
from .row_nodes import RULES

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .plan import PackedWeight, Plan

_WEIGHT, _BIAS = 1, 2  # inputs of Linear


def pack_siblings(model: ir.Model, plan: Plan) -> None:
    """Linear(x, a) and Linear(x, b), each read by row-wise nodes alone -> Slice of Linear(x, a and b)."""
    join_duplicates(model)  # keys that are values too were two nodes
    siblings: dict[Hashable, list[ir.Node]] = {}
    for node in model.graph:
        if node.op_type == "Linear" and _is_packable(node, plan):
            siblings.setdefault(_key(node, plan), []).append(node)
    for nodes in siblings.values():
        if len(nodes) > 1:
            _pack(nodes, plan)
    sweep(model.graph)


def _is_packable(linear: ir.Node, plan: Plan) -> bool:
    """Whether row-wise nodes alone read a result that is nothing but a matrix times the input."""
    result, weight = linear.outputs[0], input_of(linear, _WEIGHT)
    return (
        linear.inputs[RESIDUAL] is None
        and linear.attributes["activation"].as_string() == "none"
        and str(weight.name) in plan.weights
        and weight.name != "lm_head"
        and len(weight.uses()) == 1
        and _is_plain_bias(linear, plan)
        and not result.is_graph_output()
        and all(use.node.op_type in RULES or use.node.op_type == "RMSNorm" for use in result.uses())
    )


def _is_plain_bias(linear: ir.Node, plan: Plan) -> bool:
    """Whether its elements are arranged like the weight's rows."""
    bias, weight = linear.inputs[_BIAS], plan.weights[str(input_of(linear, _WEIGHT).name)]
    vector = None if bias is None else plan.vectors[str(bias.name)]
    return vector is None or (vector.rows, vector.scale, len(vector.sources)) == (
        weight.rows,
        weight.scale,
        len(weight.sources),
    )


def _key(linear: ir.Node, plan: Plan) -> Hashable:
    """The same for what one matrix can make."""
    weight, norm = plan.weights[str(input_of(linear, _WEIGHT).name)], linear.inputs[NORM_WEIGHT]
    norms = None if norm is None else (norm.name, linear.attributes["norm_epsilon"].as_float())
    return input_of(linear, 0), norms, weight.format, weight.transposed, weight.scale, weight.interleaved


def _pack(nodes: list[ir.Node], plan: Plan) -> None:
    parts = [plan.weights[str(input_of(node, _WEIGHT).name)] for node in nodes]
    sources = tuple(dict.fromkeys(source for part in parts for source in part.sources))
    if plan.formats.of("linear", sources) != parts[0].format:
        return  # their formats are alike because each was chosen by itself
    columns, rows = _arranged(parts, sources, plan)
    name = f"{parts[0].name}_{'_'.join(part.name.rpartition('.')[2] for part in parts[1:])}"
    weight = plan.weight(
        name,
        [ir.Value(name=source) for source in sources],
        "linear",
        stored_as=parts[0].format,
        rows=rows,
        transposed=parts[0].transposed,
        scale=parts[0].scale,
    )
    new = linear_node(plan, weight, input_of(nodes[0], 0), _bias(nodes, parts, sources, weight, plan))
    new.replace_input_with(NORM_WEIGHT, nodes[0].inputs[NORM_WEIGHT])
    new.attributes["norm_epsilon"] = nodes[0].attributes["norm_epsilon"]
    new.outputs[0].shape = ir.Shape([TOKENS, weight.out_features])
    insert_before(nodes[0], new)
    for node, own in zip(nodes, columns, strict=True):
        cut = _cut(new.outputs[0], own, plan)
        cut.outputs[0].shape, cut.outputs[0].type = node.outputs[0].shape, node.outputs[0].type
        insert_before(nodes[0], cut)
        ir.convenience.replace_all_uses_with(node.outputs[0], cut.outputs[0])


def _rows_of_source(source: str, part: PackedWeight, plan: Plan) -> int:
    return plan.shape(source)[1 if part.transposed else 0]


def _arranged(
    parts: list[PackedWeight], sources: tuple[str, ...], plan: Plan
) -> tuple[list[list[int]], tuple[int, ...] | None]:
    """Columns of each part in the joint result, and its rows among those of all sources, each once."""
    starts, total = {}, 0
    for source in sources:
        starts[source] = total
        total += _rows_of_source(source, parts[0], plan)
    places: dict[int, int] = {}
    columns = []
    for part in parts:
        own = [starts[source] + row for source in part.sources for row in range(_rows_of_source(source, part, plan))]
        numbers = own if part.rows is None else [own[row] if row >= 0 else -1 for row in part.rows]
        columns.append([places.setdefault(row, len(places)) for row in numbers])
    rows = tuple(places)
    return columns, None if rows == tuple(range(total)) else rows


def _cut(joint: ir.Value, columns: list[int], plan: Plan) -> ir.Node:
    first, last = columns[0], columns[-1]
    if columns == list(range(first, last + 1)):
        return ir.node("Slice", [joint, *(plan.integers([number]) for number in (first, last + 1, 1, 1))])
    return ir.node("Gather", [joint, plan.integers(columns)], {"axis": 1})


def _bias(
    nodes: list[ir.Node], parts: list[PackedWeight], sources: tuple[str, ...], weight: PackedWeight, plan: Plan
) -> ir.Value | None:
    """The biases arranged like the rows, zeros for those that have none."""
    found: dict[str, str] = {}
    for node, part in zip(nodes, parts, strict=True):
        bias = node.inputs[_BIAS]
        if bias is not None:
            found |= dict(zip(part.sources, plan.vectors[str(bias.name)].sources, strict=True))
    if not found:
        return None
    values = [
        ir.Value(name=found[source]) if source in found else plan.zeros(_rows_of_source(source, parts[0], plan))
        for source in sources
    ]
    return plan.vector(f"{weight.name}_bias", values, rows=weight.rows, scale=weight.scale)
