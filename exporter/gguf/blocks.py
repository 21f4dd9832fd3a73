"""Blocks of GGUF: their values, and their integers where one of pilotfish's formats holds them as they are.

Where a block's scale is a product of two numbers (Q4_K, IQ4_XS), a format has the product in f16, rounded by 0.03 % at
most. All other kinds are kept bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from pilotfish.exporter.quantise import Quantised

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]
_Type = gguf.GGMLQuantizationType
_LEAST_INT8 = -127
_SUB_BLOCKS = 8  # of 32 columns, of a block of 256
_IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
_MXFP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)  # twice the value
_MXFP4_BIAS = 128  # of the exponent, with the halves

Parts = tuple[Array, Array, "Array | None"]  # codes [rows, blocks of 32, 32], scales and offsets [rows, blocks]


def fill_values(rows: Array, kind: gguf.GGMLQuantizationType, values: Array) -> None:
    """Bytes of rows, u8 [rows, bytes], as what they stand for, f32 [rows, columns]; some kinds by the gguf package."""
    decode = _DECODE.get(kind.name)
    if decode is None:
        row = rows.reshape(1, -1)  # one for the package, which works on few rows at a time
        values[...] = gguf.dequantize(row, kind).reshape(values.shape)
        return
    codes, scale, offset = decode(_blocks(rows, kind))
    blocks = values.reshape(codes.shape)
    blocks[...] = codes
    blocks *= scale.astype(np.float32)[..., None]
    if offset is not None:
        blocks += offset.astype(np.float32)[..., None]


def keeps_integers(kind: str, format_name: str) -> bool:
    """Whether blocks of a kind, by GGUF's name, are taken over into a format without being quantised anew."""
    return (kind, format_name) in _UNPACK


def unpack_blocks(rows: Array, kind: str, format_name: str) -> Quantised | None:
    """Bytes of rows, u8 [rows, bytes], as the format's integers; None where it does not hold them."""
    unpack = _UNPACK.get((kind, format_name))
    if unpack is None:
        return None
    codes, wide_scale, wide_offset = unpack(_blocks(rows, getattr(_Type, kind)))
    scale = wide_scale.astype(np.float16)
    offset = None if wide_offset is None else wide_offset.astype(np.float16)
    if not (np.isfinite(scale).all() and (format_name != "int8" or codes.min(initial=0) >= _LEAST_INT8)):
        return None  # outside the format; quantised anew
    shape = (len(rows), -1)
    flat = None if offset is None else offset.reshape(shape)
    return Quantised(np.ascontiguousarray(codes.reshape(shape), np.int8), scale.reshape(shape), flat)


def _blocks(rows: Array, kind: gguf.GGMLQuantizationType) -> Array:
    """U8 [rows, blocks, bytes]."""
    return rows.reshape(len(rows), -1, gguf.GGML_QUANT_SIZES[kind][1])


def _half(blocks: Array, start: int) -> Array:
    """The f16 at a byte of each block."""
    return np.ascontiguousarray(blocks[:, :, start : start + 2]).view(np.float16)[..., 0]


def _nibbles(data: Array) -> Array:
    """Low nibbles are the first half of the columns."""
    return np.concatenate([data & 15, data >> 4], axis=-1)


def _q4_0(blocks: Array) -> Parts:
    return _nibbles(blocks[:, :, 2:]).astype(np.int8) - 8, _half(blocks, 0), None


def _q4_0_with_offset(blocks: Array) -> Parts:
    scale = _half(blocks, 0)  # scale * (q - 8) = scale * q + offset, exact: 8 is a power of two
    return _nibbles(blocks[:, :, 2:]), scale, scale * np.float16(-8)


def _q4_1(blocks: Array) -> Parts:
    return _nibbles(blocks[:, :, 4:]), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: Array) -> Parts:
    high = np.unpackbits(blocks[:, :, 2:6], axis=-1, bitorder="little")
    return (_nibbles(blocks[:, :, 6:]) | (high << 4)).astype(np.int8) - 16, _half(blocks, 0), None


def _q8_0(blocks: Array) -> Parts:
    return blocks[:, :, 2:].view(np.int8), _half(blocks, 0), None


def _iq4_nl(blocks: Array) -> Parts:
    return _IQ4_VALUES[_nibbles(blocks[:, :, 2:])], _half(blocks, 0), None


def _mxfp4(blocks: Array) -> Parts:
    exponent = blocks[:, :, 0].astype(np.int32) - _MXFP4_BIAS
    with np.errstate(over="ignore"):
        scale = np.ldexp(np.float32(1), exponent).astype(np.float16)
    scale[exponent < -24] = np.inf  # noqa: PLR2004 - f16's least power of two; it cannot be held
    return _MXFP4_VALUES[_nibbles(blocks[:, :, 1:])], scale, None


def _iq4_xs(blocks: Array) -> Parts:
    shape = (*blocks.shape[:2], _SUB_BLOCKS)
    index = np.arange(_SUB_BLOCKS)
    high = np.ascontiguousarray(blocks[:, :, 2:4]).view(np.uint16) >> (2 * index).astype(np.uint16)
    low = blocks[:, :, 4 + index // 2] >> (4 * (index % 2)).astype(np.uint8)
    factors = ((low & 15) | ((high & 3) << 4)).astype(np.float32) - 32
    codes = _IQ4_VALUES[_nibbles(blocks[:, :, 8:].reshape(*shape, 16))]
    return codes, _half(blocks, 0)[..., None].astype(np.float32) * factors, None


def _q4_k(blocks: Array) -> Parts:
    scales, offsets = _k_scales(blocks[:, :, 4:16])
    data = blocks[:, :, 16:].reshape(*blocks.shape[:2], _SUB_BLOCKS // 2, 32)
    codes = np.stack([data & 15, data >> 4], axis=3).reshape(*blocks.shape[:2], _SUB_BLOCKS, 32)
    scale = _half(blocks, 0)[..., None].astype(np.float32) * scales
    offset = _half(blocks, 2)[..., None].astype(np.float32) * -offsets
    return codes, scale, offset


def _k_scales(packed: Array) -> tuple[Array, Array]:
    """Eight factors of scales and eight of offsets, of six bits each, in 12 bytes."""
    first, second, third = packed[:, :, 0:4], packed[:, :, 4:8], packed[:, :, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=2)
    offsets = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=2)
    return scales.astype(np.float32), offsets.astype(np.float32)


_UNPACK: dict[tuple[str, str], Callable[[Array], Parts]] = {
    ("Q4_0", "int4"): _q4_0,
    ("Q4_0", "int4_asym"): _q4_0_with_offset,
    ("Q4_0", "int8"): _q4_0,
    ("Q4_1", "int4_asym"): _q4_1,
    ("Q4_K", "int4_asym"): _q4_k,
    ("Q5_0", "int8"): _q5_0,
    ("Q8_0", "int8"): _q8_0,
    ("IQ4_NL", "int8"): _iq4_nl,
    ("IQ4_XS", "int8"): _iq4_xs,
    ("MXFP4", "int8"): _mxfp4,
}
_DECODE: dict[str, Callable[[Array], Parts]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q5_0": _q5_0,
    "Q8_0": _q8_0,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
