"""Values of a traced graph by torch's own operators: shapes on the meta device, constants and tables with numbers.

Knows the ONNX operators that torch's exporter writes for decoders, and nothing about what they are used for.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pilotfish.exporter.errors import UnsupportedModelError

from .match import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

Tensor = torch.Tensor
_TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64}
_TYPES[16] = torch.bfloat16
EPSILON = 1e-5  # of a LayerNormalization that states none


class Evaluator:
    """Computes values on demand, each once."""

    def __init__(self, given: Callable[[ir.Value], Tensor | None]) -> None:
        """`given` has the values that nothing is to be computed for: inputs and parameters."""
        self._given = given
        self._found: dict[ir.Value, Tensor] = {}

    def __call__(self, value: ir.Value) -> Tensor:
        """The value's tensor.

        Raises:
            UnsupportedModelError: an operator that is not known, or an input without a value.
        """
        if value in self._found:
            return self._found[value]
        known = self._given(value)
        if known is None and value.const_value is not None:
            known = _tensor(value.const_value)
        if known is not None:
            self._found[value] = known
            return known
        node = value.producer()
        if node is None:
            raise UnsupportedModelError(f"{value.name} is not known while the model is exported")
        self.run(node)
        return self._found[value]

    def run(self, node: ir.Node) -> None:
        """Computes the outputs of a node."""
        function = _FUNCTIONS.get(node.op_type)
        if function is None:
            raise refuse(node, f"it computes {node.op_type}, which is not supported")
        inputs = node.inputs[:1] if node.op_type == "CastLike" else node.inputs  # the other has a type, and all is f32
        arguments = [None if value is None else self(value) for value in inputs]
        try:
            results = function(node, *_on_one_device(node.op_type, arguments))
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            raise refuse(node, f"its {node.op_type} cannot be followed: {str(error).splitlines()[0]}") from error
        if isinstance(results, torch.Tensor):
            results = [results]
        if len(results) != len(node.outputs):
            raise refuse(node, f"it reads {len(node.outputs)} results of {node.op_type}, of which one is supported")
        for output, result in zip(node.outputs, results, strict=True):
            self._found[output] = result


_SIZES_LAST = ("Reshape", "Expand", "Slice", "Split", "Unsqueeze", "Squeeze", "ReduceMean", "ReduceSum", "ReduceMax")


def _on_one_device(op_type: str, arguments: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Numbers join meta tensors there, but for those that decide about shapes."""
    count = 1 if op_type in _SIZES_LAST else len(arguments)
    if not any(item is not None and item.is_meta for item in arguments[:count]):
        return list(arguments)
    moved = [None if item is None else item.to("meta") for item in arguments[:count]]
    return [*moved, *arguments[count:]]


def _tensor(stored: ir.TensorProtocol) -> Tensor:
    """A constant of the graph; numpy's bfloat16 is unknown to torch."""
    found = stored.numpy()
    if found.dtype.name == "bfloat16":
        return torch.from_numpy(found.astype(np.float32)).bfloat16()
    return torch.from_numpy(found.copy())


def _attribute(node: ir.Node, name: str, default: Any) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value


def _integers(tensor: Tensor | None) -> list[int]:
    return [] if tensor is None else [int(item) for item in tensor.reshape(-1).tolist()]


def _constant(node: ir.Node) -> Tensor:
    for value in node.attributes.values():
        if value.name == "value":
            return _tensor(value.as_tensor())
        return torch.tensor(value.value)
    raise refuse(node, "a constant has no value")


def _reshape(node: ir.Node, x: Tensor, shape: Tensor) -> Tensor:
    sizes = _integers(shape)
    if not _attribute(node, "allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


def _axes(node: ir.Node, axes: Tensor | None, rank: int) -> list[int]:
    found = _integers(axes) if axes is not None else list(_attribute(node, "axes", ()))
    return sorted(axis % rank for axis in found)


def _squeeze(node: ir.Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    named = _axes(node, axes, x.ndim) or [axis for axis, size in enumerate(x.shape) if size == 1]
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in named])


def _unsqueeze(node: ir.Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    count = len(_integers(axes)) if axes is not None else len(_attribute(node, "axes", ()))
    for axis in _axes(node, axes, x.ndim + count):
        x = x.unsqueeze(axis)
    return x


def _slice(
    _node: ir.Node, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    first, last = _integers(starts), _integers(ends)
    along = _integers(axes) or list(range(len(first)))
    for axis, start, end, step in zip(along, first, last, _integers(steps) or [1] * len(first), strict=True):
        picked = range(*slice(start, end, step).indices(x.shape[axis]))  # which ONNX counts like Python
        if step == 1:
            x = x.narrow(axis, picked.start, len(picked))
        else:
            x = x.index_select(axis, torch.arange(len(picked), device=x.device) * step + picked.start)
    return x


def _split(node: ir.Node, x: Tensor, sizes: Tensor | None = None) -> Sequence[Tensor]:
    axis, count = _attribute(node, "axis", 0), len(node.outputs)
    parts = _integers(sizes)
    if not parts:
        each = -(-x.shape[axis] // count)
        parts = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
    return list(torch.split_with_sizes(x, parts, axis))


def _gather(node: ir.Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = _attribute(node, "axis", 0) % max(x.ndim, 1)
    flat = indices.reshape(-1).long()
    if not flat.is_meta:
        flat = torch.where(flat < 0, flat + x.shape[axis], flat)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, flat).reshape(shape)


def _gather_nd(node: ir.Node, x: Tensor, indices: Tensor) -> Tensor:
    if _attribute(node, "batch_dims", 0):
        raise ValueError("a GatherND with batch axes")
    return x[tuple(indices.long().unbind(-1))]


def _reduce(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(node: ir.Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        along = _axes(node, axes, x.ndim)
        if not along and _attribute(node, "noop_with_empty_axes", 0):
            return x
        along = along or list(range(x.ndim))
        return function(x, along, bool(_attribute(node, "keepdims", 1)))

    return run


def _expand(_node: ir.Node, x: Tensor, shape: Tensor) -> Tensor:
    sizes = _integers(shape)
    rank = max(x.ndim, len(sizes))
    own = [1] * (rank - x.ndim) + list(x.shape)
    wanted = [1] * (rank - len(sizes)) + sizes
    return x.expand([max(pair) for pair in zip(own, wanted, strict=True)])


def _cast(node: ir.Node, x: Tensor) -> Tensor:
    target = _attribute(node, "to", 1)
    if target not in _TYPES:
        raise ValueError(f"a cast to the type of number {target}")
    return x.to(_TYPES[target])


def _clip(_node: ir.Node, x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    return x.clamp(least, most)


def _range(_node: ir.Node, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    return torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def _filled(node: ir.Node, shape: Tensor) -> Tensor:
    value = node.attributes.get("value")
    filling = torch.zeros(1) if value is None else torch.from_numpy(value.as_tensor().numpy().copy())
    return filling.reshape(()).expand(_integers(shape)).clone()


def _matmul_bias(node: ir.Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a = a.T if _attribute(node, "transA", 0) else a
    b = b.T if _attribute(node, "transB", 0) else b
    product: Tensor = a @ b * _attribute(node, "alpha", 1.0)
    return product if c is None else product + c * _attribute(node, "beta", 1.0)


def _layer_norm(node: ir.Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    axis = _attribute(node, "axis", -1) % x.ndim
    return torch.nn.functional.layer_norm(x, x.shape[axis:], scale, bias, _attribute(node, "epsilon", EPSILON))


def _attention(_node: ir.Node, query: Tensor, _key: Tensor, value: Tensor, *_: Tensor | None) -> Tensor:
    return query.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3])


def _rms_norm(node: ir.Node, x: Tensor, weight: Tensor | None = None) -> Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, _attribute(node, "epsilon", EPSILON))


def _plain(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda _node, *arguments: function(*arguments)


def _divide(x: Tensor, y: Tensor) -> Tensor:
    whole = not (x.is_floating_point() or y.is_floating_point())
    return torch.div(x, y, rounding_mode="trunc") if whole else x / y


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: _plain(getattr(torch, name.lower())) for name in ("Abs", "Add", "Sub", "Mul", "Neg", "Sqrt", "Reciprocal")
    },
    **{name: _plain(getattr(torch, name.lower())) for name in ("Pow", "Exp", "Log", "Cos", "Sin", "Tanh", "Sigmoid")},
    **{name: _plain(getattr(torch, name.lower())) for name in ("Erf", "Relu", "Where", "Floor", "Greater", "Less")},
    "Div": _plain(_divide),
    "Equal": _plain(torch.eq),
    "GreaterOrEqual": _plain(torch.ge),
    "LessOrEqual": _plain(torch.le),
    "And": _plain(torch.logical_and),
    "Or": _plain(torch.logical_or),
    "Not": _plain(torch.logical_not),
    "Max": _plain(lambda *items: reduce(torch.maximum, items)),
    "Min": _plain(lambda *items: reduce(torch.minimum, items)),
    "MatMul": _plain(torch.matmul),
    "Gemm": _matmul_bias,
    "Identity": _plain(lambda x: x),
    "Softplus": _plain(torch.nn.functional.softplus),
    "Gelu": lambda node, x: torch.nn.functional.gelu(x, approximate=_attribute(node, "approximate", "none")),
    "Softmax": lambda node, x: torch.softmax(x, _attribute(node, "axis", -1)),
    "Cast": _cast,
    "CastLike": lambda _node, x: x.to(torch.float32),
    "Clip": _clip,
    "Concat": lambda node, *parts: torch.cat(parts, _attribute(node, "axis", 0)),
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "LayerNormalization": _layer_norm,
    "Range": _range,
    "ReduceMax": _reduce(torch.amax),
    "ReduceMean": _reduce(torch.mean),
    "ReduceSum": _reduce(torch.sum),
    "Reshape": _reshape,
    "Shape": lambda node, x: torch.tensor(x.shape)[_attribute(node, "start", 0) : _attribute(node, "end", None)],
    "Size": lambda _node, x: torch.tensor(math.prod(x.shape)),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": lambda node, x: x.permute(*_attribute(node, "perm", tuple(reversed(range(x.ndim))))),
    "Unsqueeze": _unsqueeze,
    # of pilotfish's domain, between tracing and the passes
    "Attention": _attention,
    "RMSNorm": _rms_norm,
    "Projection": lambda _node, x, weight, bias=None: torch.nn.functional.linear(x, weight, bias),
}
