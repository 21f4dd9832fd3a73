"""The published layouts of quantised matrices, read with numpy: which bits of which tensor are which weight.

`tensor` gives a tensor of a module by its own name, such as "qweight"; `has` says whether there is one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.errors import CheckpointError

from .groups import Grouped

if TYPE_CHECKING:
    from collections.abc import Callable

    from .method import Method

Array = np.ndarray[Any, np.dtype[Any]]
_WORD_BITS = 32
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column of eight that each nibble of a word holds


def fields(words: Array, bits: int, axis: int) -> Array:
    """int32 words -> their unsigned fields of some bits, the lowest first, along an axis."""
    shifts = np.arange(0, _WORD_BITS, bits, dtype=np.uint32)
    words = np.moveaxis(words.astype(np.int64).astype(np.uint32), axis, -1)
    values = (words[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    return np.asarray(np.moveaxis(values.reshape(*words.shape[:-1], -1), -1, axis), np.uint8)


def shape(method: Method, tensor: Callable[[str], Array]) -> tuple[int, ...]:
    """Rows and columns of the matrix that a module's tensors stand for."""
    per_word = _WORD_BITS // method.bits
    if method.layout == "gptq":
        words, rows = tensor("qweight").shape
        return rows, words * per_word
    if method.layout == "awq":
        columns, words = tensor("qweight").shape
        return words * per_word, columns
    if method.layout == "packed":
        return tuple(int(size) for size in tensor("weight_shape"))
    if method.layout == "nf4":
        return tuple(int(size) for size in _nf4_state(tensor)["shape"])
    return tuple(tensor("weight").shape)


def gptq(tensor: Callable[[str], Array], has: Callable[[str], bool], method: Method) -> Grouped:
    """Qweight [columns / per word, rows], qzeros [groups, rows / per word], scales [groups, rows], g_idx [columns]."""
    codes = fields(tensor("qweight"), method.bits, 0).T
    zeros = fields(tensor("qzeros"), method.bits, 1).T.astype(np.int32)
    zeros = (zeros + method.zero_is_less_one) & ((1 << method.bits) - 1)
    num_groups = tensor("scales").shape[0]
    group_of = tensor("g_idx") if has("g_idx") else _in_order(codes.shape[1], num_groups)
    return _grouped(codes, tensor("scales").T, zeros, group_of, method.bits)


def awq(tensor: Callable[[str], Array], _has: Callable[[str], bool], method: Method) -> Grouped:
    """Qweight [columns, rows / 8], qzeros [groups, rows / 8], scales [groups, rows]; nibbles in AWQ's order."""

    def ordered(words: Array) -> Array:
        nibbles = fields(words, method.bits, 1).reshape(len(words), -1, len(_AWQ_ORDER))
        return np.asarray(nibbles[..., np.argsort(_AWQ_ORDER)].reshape(len(words), -1).T)

    codes, scales = ordered(tensor("qweight")), tensor("scales")
    group_of = _in_order(codes.shape[1], scales.shape[0])
    return _grouped(codes, scales.T, ordered(tensor("qzeros")).astype(np.int32), group_of, method.bits)


def packed(tensor: Callable[[str], Array], has: Callable[[str], bool], method: Method) -> Grouped:
    """weight_packed [rows, columns / per word] of codes above their middle, weight_scale [rows, groups]."""
    rows, columns = (int(size) for size in tensor("weight_shape"))
    codes, scales = fields(tensor("weight_packed"), method.bits, 1)[:, :columns], tensor("weight_scale")
    zeros = np.full(scales.shape, 1 << (method.bits - 1), np.int32)
    if has("weight_zero_point"):
        zeros = fields(tensor("weight_zero_point"), method.bits, 0)[:rows].astype(np.int32)
    group_of = tensor("weight_g_idx") if has("weight_g_idx") else _in_order(columns, scales.shape[1])
    return _grouped(codes, scales, zeros, group_of, method.bits)


def integers(tensor: Callable[[str], Array], has: Callable[[str], bool], method: Method) -> Grouped:
    """Weight [rows, columns] int8, weight_scale [rows, groups] or one for all."""
    codes, scales = tensor("weight"), tensor("weight_scale")
    scales = np.broadcast_to(scales.reshape(-1, 1) if scales.size == 1 else scales, (len(codes), scales.shape[-1]))
    zeros = np.full(scales.shape, 128, np.int32)
    if has("weight_zero_point"):
        zeros = zeros + tensor("weight_zero_point").astype(np.int32)
    shifted = (codes.astype(np.int16) + 128).astype(np.uint8)
    return _grouped(shifted, scales, zeros, _in_order(codes.shape[1], scales.shape[1]), method.bits)


def fp8(tensor: Callable[[str], Array], has: Callable[[str], bool]) -> Array:
    """Weight in e4m3 times weight_scale or weight_scale_inv: one, one a row, or one a square block. As f32."""
    values = tensor("weight").astype(np.float32)
    scales = tensor("weight_scale_inv" if has("weight_scale_inv") else "weight_scale").astype(np.float32)
    if scales.size == 1:
        return values * scales.reshape(1)
    if scales.ndim == 1:
        scales = scales[:, None]
    if len(scales) == len(values) and scales.shape[1] == 1:
        return values * scales
    spans = [-(-size // count) for size, count in zip(values.shape, scales.shape, strict=True)]
    spans = [1 << (span - 1).bit_length() for span in spans]  # the last block may be cut short
    wide = scales.repeat(spans[0], axis=0).repeat(spans[1], axis=1)
    return values * wide[: values.shape[0], : values.shape[1]]


def nf4(tensor: Callable[[str], Array], has: Callable[[str], bool]) -> Array:
    """Nibbles are indices into quant_map, the high one first; absmax of each block may be quantised itself. As f32."""
    state = _nf4_state(tensor)
    largest = tensor("weight.absmax").reshape(-1)
    if has("weight.nested_absmax"):
        nested = tensor("weight.nested_absmax").reshape(-1).repeat(int(state["nested_blocksize"]))[: largest.size]
        values = tensor("weight.nested_quant_map")[largest.astype(np.uint8)]
        largest = values * nested + np.float32(state["nested_offset"])
    data = tensor("weight").reshape(-1)
    codes = np.stack([data >> 4, data & 15], axis=1).reshape(-1)
    wide = largest.astype(np.float32).repeat(int(state["blocksize"]))[: codes.size]
    return (tensor("weight.quant_map")[codes] * wide).reshape(tuple(state["shape"]))


def _nf4_state(tensor: Callable[[str], Array]) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(bytes(tensor("weight.quant_state.bitsandbytes__nf4").astype(np.uint8)))
    return state


def _in_order(columns: int, groups: int) -> Array:
    if columns % groups:
        raise CheckpointError(f"{columns} columns do not divide into {groups} groups; is the checkpoint complete?")
    return np.arange(columns) // (columns // groups)


def _grouped(codes: Array, scales: Array, zeros: Array, group_of: Array, bits: int) -> Grouped:
    scales = scales.astype(np.float32)
    if not np.isfinite(scales).all():
        raise CheckpointError("a scale is not a finite number; download the checkpoint again")
    if scales.shape != zeros.shape or len(scales) != len(codes) or int(group_of.max()) >= scales.shape[1]:
        raise CheckpointError(f"codes {codes.shape}, scales {scales.shape} and zeros {zeros.shape} do not fit together")
    return Grouped(codes, scales, zeros, group_of.astype(np.int64), bits)
