"""A node that ONNX Runtime's CUDA provider has no kernel for, among operators that a bundle may have."""

from __future__ import annotations

import onnx
from onnx import helper

NAME = "of_the_cpu"


def through_the_cpu(source: str, result: str) -> list[onnx.NodeProto]:
    """Nodes from `source` to `result`, both float32, whose `Max` of bytes only the CPU has."""
    return [
        helper.make_node("Cast", [source], ["bytes"], to=onnx.TensorProto.INT8),
        helper.make_node("Max", ["bytes", "bytes"], ["most"], name=NAME),
        helper.make_node("Cast", ["most"], [result], to=onnx.TensorProto.FLOAT),
    ]
