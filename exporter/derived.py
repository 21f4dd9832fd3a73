"""Stored vectors that are computed of a checkpoint's parameters, such as 1 + w of a norm, as if it had them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .passes.evaluate import Evaluator

if TYPE_CHECKING:
    import onnx_ir as ir

    from .passes import Plan
    from .quantise import Quantised
    from .sources import WeightSource

Array = np.ndarray[Any, np.dtype[Any]]


def with_derived(source: WeightSource, plan: Plan) -> WeightSource:
    """A source that has the plan's derived vectors too."""
    return _DerivedSource(source, plan) if plan.derived else source


class _DerivedSource:
    def __init__(self, source: WeightSource, plan: Plan) -> None:
        self._source, self._plan = source, plan

    def read(self, name: str) -> Array:
        """A tensor of the checkpoint, or one computed of its tensors."""
        value = self._plan.derived.get(name)
        if value is None:
            return self._source.read(name)
        computed = Evaluator(self._given)(value).to(torch.float32)
        return np.asarray(computed.reshape(self._shape(computed)).numpy())

    def read_blocks(self, name: str, format_name: str) -> Quantised | None:
        """Those of the checkpoint."""
        return self._source.read_blocks(name, format_name)

    def stored_type(self, name: str) -> str | None:
        """That of the checkpoint."""
        return self._source.stored_type(name)

    def _given(self, value: ir.Value) -> torch.Tensor | None:
        name = str(value.name)
        if name in self._plan.buffers:
            return self._plan.buffers[name]
        return torch.from_numpy(self._source.read(name).copy()) if name in self._plan.parameters else None

    @staticmethod
    def _shape(computed: torch.Tensor) -> tuple[int, ...]:
        """Without leading axes of one element, and with one axis at least."""
        shape = tuple(computed.shape)
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        return shape or (1,)
