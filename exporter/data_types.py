"""The contract's data types as ONNX's."""

from __future__ import annotations

import onnx_ir as ir

DATA_TYPES = {
    "int32": ir.DataType.INT32,
    "uint64": ir.DataType.UINT64,
    "u8": ir.DataType.UINT8,
    "f32": ir.DataType.FLOAT,
    "f16": ir.DataType.FLOAT16,
}
