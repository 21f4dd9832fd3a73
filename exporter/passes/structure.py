"""Whether two traced values are computed in the same way from the same inputs, so that one table serves both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Hashable

_SAME_ELEMENTS = ("Identity", "Squeeze", "Unsqueeze")


def without_axes(value: ir.Value) -> ir.Value:
    """The value that has the same elements, above nodes that only add or drop axes of one element."""
    while (node := value.producer()) is not None and node.op_type in _SAME_ELEMENTS and node.inputs[0] is not None:
        value = node.inputs[0]
    return value


class Structures:
    """Numbers of values: the same number, the same computation."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[ir.Value, int] = {}

    def __call__(self, value: ir.Value) -> int:
        """The value's number."""
        if value not in self._known:
            key = self._key(value)
            self._known[value] = self._numbers.setdefault(key, len(self._numbers))
        return self._known[value]

    def _key(self, value: ir.Value) -> Hashable:
        tensor, node = ir.convenience.get_const_tensor(value), value.producer()
        if tensor is not None:
            array = tensor.numpy()
            return array.dtype.str, array.shape, array.tobytes()
        if node is None:
            return value.name
        inputs = tuple(None if item is None else self(item) for item in node.inputs)
        attributes = tuple(sorted((name, str(item.value)) for name, item in node.attributes.items()))
        return node.op_type, value.index(), inputs, attributes
