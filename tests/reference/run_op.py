"""Runs one pilotfish operator through ONNX Runtime's Python module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class OpRunner:
    """A session with one node. Inputs are bound without a copy, so what the operator writes to them is seen."""

    def __init__(
        self,
        library: str,
        op: str,
        inputs: Mapping[str, NDArray[np.generic] | None],
        attributes: Mapping[str, int | float | str | list[int]],
        *,
        threads: int = 1,
        num_outputs: int = 1,
    ) -> None:
        self._outputs = ["out", *(f"out{index}" for index in range(1, num_outputs))]
        names = [name if value is not None else "" for name, value in inputs.items()]
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(op, names, self._outputs, domain="pilotfish")
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        graph_inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
            for name, value in inputs.items()
            if value is not None
        ]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in self._outputs]
        model = helper.make_model(
            helper.make_graph([node], "one_op", graph_inputs, outputs),
            opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("pilotfish", 1)],
            ir_version=10,
        )
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(library)
        self._session = ort.InferenceSession(
            onnx.ModelProto.SerializeToString(model), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, inputs: Mapping[str, NDArray[np.generic] | None]) -> NDArray[np.float32]:
        return self.all(inputs)[0]

    def all(self, inputs: Mapping[str, NDArray[np.generic] | None]) -> list[NDArray[np.float32]]:
        """Every output."""
        binding = self._session.io_binding()
        for name, value in inputs.items():
            if value is not None:
                kind = helper.np_dtype_to_tensor_dtype(value.dtype)
                binding.bind_input(name, "cpu", 0, kind, value.shape, value.ctypes.data)
        for name in self._outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        return [np.asarray(value) for value in binding.copy_outputs_to_cpu()]


def run_op(
    library: str,
    op: str,
    inputs: Mapping[str, NDArray[np.generic] | None],
    attributes: Mapping[str, int | float | str],
    *,
    threads: int = 1,
) -> NDArray[np.float32]:
    return OpRunner(library, op, inputs, attributes, threads=threads)(inputs)
