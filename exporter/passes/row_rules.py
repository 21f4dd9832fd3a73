"""How each operator that a decoder is traced to acts on the cores of rows, one function a kind of operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from pilotfish.exporter.contract import DOMAIN

from .evaluate import EPSILON
from .match import input_of, refuse
from .row_graph import Kind, core_of, row_dims
from .row_rules_own import MATRIX, attention, permutation, projection, rms_norm

if TYPE_CHECKING:
    from collections.abc import Callable

    from .lower import Lowering

_ELEMENTWISE = (
    *("Abs", "Add", "And", "Clip", "Div", "Equal", "Erf", "Exp", "Gelu", "Greater", "GreaterOrEqual", "Less"),
    *("LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Sigmoid", "Sqrt"),
    *("Sub", "Tanh", "Where"),
)
_FLOAT = 1


def _kept(shape: tuple[int, ...]) -> list[int]:
    """The traced axes that a core has, the tokens' first."""
    last = len(shape) - 1
    return [0, *(axis for axis in range(1, last + 1) if shape[axis] != 1 or axis == last)]


def _axis_of(lowering: Lowering, value: ir.Value, axis: int) -> int | None:
    """Where a traced axis is in the core; None: it has one element and is not there."""
    shape = lowering.shape(value)
    kept = _kept(shape)
    axis %= len(shape)
    if axis == 0:
        raise refuse(lowering.graph.origin, "it works along the tokens")
    return kept.index(axis) if axis in kept else None


def elementwise(lowering: Lowering, node: ir.Node) -> None:
    """Any number of inputs that are broadcast."""
    shape = lowering.shape(node.outputs[0])
    dropped = {axis for axis in range(1, len(shape) - 1) if shape[axis] == 1}
    inputs = [None if value is None else lowering.aligned(value, shape, dropped) for value in node.inputs]
    if node.op_type == "Clip" and any(value is not None and value.const_value is None for value in inputs[1:]):
        raise refuse(node, "it clips to bounds that are computed, not numbers")
    core = lowering.graph.op(node.op_type, inputs, core_of(shape), node.attributes)
    lowering.set_core(node.outputs[0], core)


def same_elements(lowering: Lowering, node: ir.Node) -> None:
    """Reshape, Squeeze, Unsqueeze and what changes nothing."""
    lowering.set_core(node.outputs[0], lowering.core(input_of(node, 0)))


def cast(lowering: Lowering, node: ir.Node) -> None:
    """Rows are f32, and conditions become so."""
    target = node.attributes["to"].as_int() if "to" in node.attributes else input_of(node, 1).dtype or _FLOAT
    if target != _FLOAT:
        raise refuse(node, "it computes in another type than f32")
    core = lowering.core(input_of(node, 0))
    if core.dtype == ir.DataType.BOOL:
        core = lowering.graph.op("Cast", [core], row_dims(core), {"to": _FLOAT})
    lowering.set_core(node.outputs[0], core)


def transpose(lowering: Lowering, node: ir.Node) -> None:
    """Axes of one element move for free."""
    x = input_of(node, 0)
    shape = lowering.shape(x)
    order = permutation(node, len(shape))
    wide = [axis for axis in order[1:] if shape[axis] != 1]
    core = lowering.core(x)
    if wide != sorted(wide):
        sizes = [shape[axis] for axis in sorted(wide)]
        ranks = {axis: rank + 1 for rank, axis in enumerate(sorted(wide))}
        flat = lowering.graph.reshape(core, sizes)
        perm = [0, *(ranks[axis] for axis in wide)]
        core = lowering.graph.op("Transpose", [flat], [shape[axis] for axis in wide], {"perm": perm})
    lowering.set_core(node.outputs[0], core)


def slices(lowering: Lowering, node: ir.Node) -> None:
    """One node for all axes."""
    x, result = input_of(node, 0), node.outputs[0]
    before, after = lowering.shape(x), lowering.shape(result)
    starts, ends, axes, steps = (lowering.integers(value) for value in (*node.inputs[1:], None, None)[:4])
    if any(step < 1 for step in steps):
        raise refuse(node, "it puts elements of a row in reverse order")
    axes = [axis % len(before) for axis in axes or range(len(starts))]
    steps = steps or [1] * len(starts)
    core, dims = lowering.core(x), list(core_of(before))
    numbers: list[list[int]] = [[], [], [], []]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if before[axis] == after[axis]:
            continue
        place = _axis_of(lowering, x, axis)
        if place is None:
            raise refuse(node, "it takes nothing of an axis")
        dims[place - 1] = after[axis]
        for into, number in zip(numbers, (start, min(end, before[axis]), place, step), strict=True):
            into.append(number)
    if numbers[0]:
        constants = [lowering.plan.integers(item) for item in numbers]
        core = lowering.graph.op("Slice", [core, *constants], dims)
    lowering.set_core(result, core)


def split(lowering: Lowering, node: ir.Node) -> None:
    """Parts of any sizes."""
    x, axis = input_of(node, 0), node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    place = _axis_of(lowering, x, axis)
    before = lowering.shape(x)
    sizes = [lowering.shape(output)[axis] for output in node.outputs]
    if place is None or len(sizes) == 1:
        return same_elements(lowering, node)
    dims = [list(core_of(before)) for _ in sizes]
    for item, size in zip(dims, sizes, strict=True):
        item[place - 1] = size
    inputs = [lowering.core(x), lowering.plan.integers(sizes)]
    parts = lowering.graph.ops("Split", inputs, dims, {"axis": place - len(dims[0]) - 1})
    for output, part in zip(node.outputs, parts, strict=True):
        lowering.set_core(output, part)
    return None


def expand(lowering: Lowering, node: ir.Node) -> None:
    """Copies along axes of one element."""
    x, shape = input_of(node, 0), lowering.shape(node.outputs[0])
    dropped = {axis for axis in range(1, len(shape) - 1) if shape[axis] == 1}
    core = lowering.aligned(x, shape, dropped)
    dims = core_of(shape)
    if row_dims(core) != dims:
        core = lowering.graph.op("Expand", [core, lowering.plan.integers([1, *dims])], dims)
    lowering.set_core(node.outputs[0], core)


def concat(lowering: Lowering, node: ir.Node) -> None:
    """Along any axis but the tokens'."""
    if len(node.inputs) == 1:
        return same_elements(lowering, node)
    shape = lowering.shape(node.outputs[0])
    axis = node.attributes["axis"].as_int() % len(shape)
    kept = _kept(shape)
    if axis == 0 or axis not in kept:
        raise refuse(node, "it joins tokens")
    dropped = set(range(1, len(shape))) - set(kept)
    inputs = []
    for value in node.inputs:
        if value is None or lowering.kind(value) < Kind.POSITION:
            raise refuse(node, "it joins rows with constants")
        inputs.append(lowering.aligned(value, shape, dropped))
    place = kept.index(axis)
    core = lowering.graph.op("Concat", inputs, core_of(shape), {"axis": place - len(kept)})
    lowering.set_core(node.outputs[0], core)
    return None


def gather(lowering: Lowering, node: ir.Node) -> None:
    """Rows of an embedding, or constant columns of a row."""
    data, indices = input_of(node, 0), input_of(node, 1)
    result = node.outputs[0]
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    if lowering.kind(data) < lowering.kind(result):
        return _embed(lowering, node, data, indices, axis)
    place = _axis_of(lowering, data, axis)
    if place is None or len(lowering.shape(indices)) > 1:
        raise refuse(node, "it takes columns of a row in an order that is not supported")
    columns = [column % lowering.shape(data)[axis] for column in lowering.integers(indices)]
    dims = list(core_of(lowering.shape(data)))
    dims[place - 1] = len(columns)
    inputs = [lowering.core(data), lowering.plan.integers(columns)]
    lowering.set_core(result, lowering.graph.op("Gather", inputs, dims, {"axis": place}))
    return None


def _embed(lowering: Lowering, node: ir.Node, data: ir.Value, indices: ir.Value, axis: int) -> None:
    is_matrix = data.name in lowering.plan.parameters and len(lowering.shape(data)) == MATRIX
    rows = lowering.looked_up(indices, lowering.shape(data)[0]) if is_matrix and axis == 0 else None
    if rows is None:
        raise refuse(node, "it looks rows up by something else than the tokens")
    inputs, width = [lowering.graph.parameter(data)], lowering.shape(data)[1:]
    lowering.set_core(node.outputs[0], lowering.graph.op("Lookup", inputs, width, rows, domain=DOMAIN))


def reduce(lowering: Lowering, node: ir.Node) -> None:
    """Along any axes but the tokens'."""
    x, result = input_of(node, 0), node.outputs[0]
    rank = len(lowering.shape(x))
    given = node.attributes.get("axes")
    named = lowering.integers(node.inputs[1]) if len(node.inputs) > 1 else list(given.as_ints() if given else ())
    if not named:  # all axes are those of tokens, too: what has rows left is unchanged
        return same_elements(lowering, node)
    places = [_axis_of(lowering, x, axis % rank) for axis in named]
    dims = list(core_of(lowering.shape(x)))
    along = [place for place in places if place is not None]
    if not along:  # one element each
        return same_elements(lowering, node)
    for place in along:
        dims[place - 1] = 1
    axes = lowering.plan.integers([place - len(dims) - 1 for place in along])
    core = lowering.graph.op(node.op_type, [lowering.core(x), axes], dims, {"keepdims": 1})
    lowering.set_core(result, core)
    return None


def softmax(lowering: Lowering, node: ir.Node) -> None:
    """Along the last axis."""
    x = input_of(node, 0)
    rank = len(lowering.shape(x))
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    if axis % rank != rank - 1:
        raise refuse(node, "its Softmax is not along the last axis")
    core = lowering.core(x)
    lowering.set_core(node.outputs[0], lowering.graph.op("Softmax", [core], core_of(lowering.shape(x)), {"axis": -1}))


def layer_norm(lowering: Lowering, node: ir.Node) -> None:
    """ONNX Runtime's own operator."""
    x = input_of(node, 0)
    shape = lowering.shape(x)
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    if axis % len(shape) != len(shape) - 1:
        raise refuse(node, "its LayerNorm is over more than the last axis")
    vectors = [None if value is None else lowering.constant(value, lowering.shape(value)) for value in node.inputs[1:3]]
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else EPSILON
    attributes = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
    inputs = [lowering.core(x), *vectors]
    lowering.set_core(node.outputs[0], lowering.graph.op(node.op_type, inputs, core_of(shape), attributes))


RULES: dict[str, Callable[[Lowering, ir.Node], None]] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(("Identity", "Reshape", "Squeeze", "Unsqueeze"), same_elements),
    **dict.fromkeys(("MatMul", "Gemm", "Projection"), projection),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceSum"), reduce),
    "Attention": attention,
    "Cast": cast,
    "CastLike": cast,
    "Concat": concat,
    "Expand": expand,
    "Gather": gather,
    "LayerNormalization": layer_norm,
    "RMSNorm": rms_norm,
    "Slice": slices,
    "Softmax": softmax,
    "Split": split,
    "Transpose": transpose,
}
