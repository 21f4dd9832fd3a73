"""The published layouts of quantised matrices, read with numpy: which bits of which tensor are which weight.

A `Module` has the tensors of one matrix by their own names, such as "qweight".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

from .groups import Grouped

if TYPE_CHECKING:
    from collections.abc import Callable

    from .method import Method

Array = np.ndarray[Any, np.dtype[Any]]
_WORD_BITS = 32
_BITS = (4, 8)
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column of eight that each nibble of a word holds
_FP4_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_FP4_EXPONENT_BIAS = 127  # of scales that are powers of two


@dataclass(frozen=True, slots=True)
class Module:
    """The tensors of a quantised matrix, in their own types where numpy has these, else as f32."""

    method: Method
    tensor: Callable[[str], Array]
    has: Callable[[str], bool]

    def integers(self, name: str, num_axes: int) -> Array:
        """A tensor of integers.

        Raises:
            CheckpointError: it has values of another kind, or another number of axes.
        """
        found = self.tensor(name)
        if found.dtype.kind not in "iu" or found.ndim != num_axes:
            raise CheckpointError(
                f"{name} is {found.dtype} {list(found.shape)}, which must be integers with {num_axes} axes; download "
                "the checkpoint again"
            )
        return found


def fields(words: Array, bits: int, axis: int) -> Array:
    """int32 words -> their unsigned fields of some bits, the lowest first, along an axis."""
    shifts = np.arange(0, _WORD_BITS, bits, dtype=np.uint32)
    words = np.moveaxis(words.astype(np.int64).astype(np.uint32), axis, -1)
    values = (words[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    return np.asarray(np.moveaxis(values.reshape(*words.shape[:-1], -1), -1, axis), np.uint8)


def shape(layout: str, module: Module) -> tuple[int, ...]:
    """Rows and columns of the matrix that a module's tensors stand for."""
    if layout == "gptq":
        words, rows = module.integers("qweight", 2).shape
        return rows, words * (_WORD_BITS // _gptq_bits(module))
    if layout == "awq":
        columns, words = module.integers("qweight", 2).shape
        return words * len(_AWQ_ORDER), columns
    if layout == "packed":
        return _packed_shape(module)
    if layout == "nf4":
        return tuple(int(size) for size in _nf4_state(module)["shape"])
    if layout == "fp4":
        rows, pairs = _fp4_pairs(module).shape
        return rows, 2 * pairs
    return tuple(module.tensor("weight").shape)


def gptq(module: Module) -> Grouped:
    """Qweight [columns / per word, rows], qzeros [groups, rows / per word], scales [groups, rows], g_idx [columns]."""
    bits = _gptq_bits(module)
    codes = fields(module.integers("qweight", 2), bits, 0).T
    zeros = fields(module.integers("qzeros", 2), bits, 1).T.astype(np.int32)
    zeros = (zeros + module.method.zero_is_less_one) & ((1 << bits) - 1)
    scales = module.tensor("scales")
    group_of = module.integers("g_idx", 1) if module.has("g_idx") else _in_order(codes.shape[1], len(scales))
    return _grouped(codes, scales.T, zeros, group_of, bits)


def _gptq_bits(module: Module) -> int:
    """Matrices of one model may have different ones: a row's zero points take as many bits of a word as its codes."""
    rows, words = module.integers("qweight", 2).shape[1], module.integers("qzeros", 2).shape[1]
    bits = int(words * _WORD_BITS // max(rows, 1))
    if bits not in _BITS:
        raise UnsupportedModelError(f"it has codes of {bits} bits; known are 4 and 8. Export a GGUF file")
    return bits


def awq(module: Module) -> Grouped:
    """Qweight [columns, rows / 8], qzeros [groups, rows / 8], scales [groups, rows]; nibbles in AWQ's order."""

    def ordered(name: str) -> Array:
        words = module.integers(name, 2)
        nibbles = fields(words, 4, 1).reshape(len(words), -1, len(_AWQ_ORDER))
        return np.asarray(nibbles[..., np.argsort(_AWQ_ORDER)].reshape(len(words), -1).T)

    codes, scales = ordered("qweight"), module.tensor("scales")
    group_of = _in_order(codes.shape[1], len(scales))
    return _grouped(codes, scales.T, ordered("qzeros").astype(np.int32), group_of, 4)


def packed(module: Module) -> Grouped:
    """weight_packed [rows, columns / per word] of codes above their middle, weight_scale [rows, groups]."""
    rows, columns = _packed_shape(module)
    words, scales = module.integers("weight_packed", 2), module.tensor("weight_scale")
    bits = next((bits for bits in _BITS if words.shape[1] == -(-columns * bits // _WORD_BITS)), None)
    if bits is None:
        raise CheckpointError(f"weight_packed has {words.shape[1]} words a row for {columns} columns of 4 or 8 bits")
    codes, middle = fields(words, bits, 1)[:, :columns], 1 << (bits - 1)
    zeros = np.full(scales.shape, middle, np.int32)
    if module.has("weight_zero_point"):
        stored = module.integers("weight_zero_point", 2)
        is_plain = stored.shape == scales.shape  # from the middle, as older versions wrote them
        zeros = stored + middle if is_plain else fields(stored, bits, 0)[:rows]
    group_of = module.integers("weight_g_idx", 1) if module.has("weight_g_idx") else _in_order(columns, scales.shape[1])
    return _grouped(codes, scales, zeros.astype(np.int32), group_of, bits)


def _packed_shape(module: Module) -> tuple[int, int]:
    rows, columns = (int(size) for size in module.integers("weight_shape", 1))
    return rows, columns


def integers(module: Module) -> Grouped:
    """Weight [rows, columns] int8, weight_scale [rows, groups], one a row or one for all."""
    zeros = module.integers("weight_zero_point", 2) if module.has("weight_zero_point") else None
    return _signed(module.integers("weight", 2), module.tensor("weight_scale"), zeros)


def llm_int8(module: Module) -> Grouped:
    """Weight [rows, columns] int8, SCB [rows]: the value that 127 stands for."""
    return _signed(module.integers("weight", 2), module.tensor("SCB").reshape(-1, 1) / np.float32(127), None)


def _signed(codes: Array, scales: Array, zeros: Array | None) -> Grouped:
    scales = np.broadcast_to(scales.reshape(-1, 1) if scales.size == 1 else scales, (len(codes), scales.shape[-1]))
    shifted = np.full(scales.shape, 128, np.int32) + (0 if zeros is None else zeros.astype(np.int32))
    group_of = _in_order(codes.shape[1], scales.shape[1])
    return _grouped((codes.astype(np.int16) + 128).astype(np.uint8), scales, shifted, group_of, 8)


def fp8(module: Module) -> Array:
    """Weight in 8-bit floats times weight_scale or weight_scale_inv: one, one a row, or one a block. As f32."""
    values = module.tensor("weight").astype(np.float32)
    scales = module.tensor("weight_scale_inv" if module.has("weight_scale_inv") else "weight_scale")
    scales = scales.astype(np.float32)
    _check_scales(scales)
    if scales.size == 1:
        return values * scales.reshape(1)
    if scales.ndim == 1:
        scales = scales[:, None]
    if scales.shape == (len(values), 1):
        return values * scales
    rows, columns = module.method.block
    if scales.shape != (-(-values.shape[0] // rows), -(-values.shape[1] // columns)):
        raise CheckpointError(f"{scales.shape} scales are not one for each block of {rows} x {columns} weights")
    wide = scales.repeat(rows, axis=0)[: values.shape[0]].repeat(columns, axis=1)[:, : values.shape[1]]
    return values * wide


def fp4(module: Module) -> Array:
    """Bytes of two 4-bit floats, the first one low; scales of groups of columns, and one of these. As f32."""
    pairs, scales = _fp4_pairs(module), module.tensor("weight_scale")
    if scales.dtype == np.uint8:
        scales = np.ldexp(np.float32(1), scales.astype(np.int32) - _FP4_EXPONENT_BIAS)
    if module.has("weight_scale_2"):
        scales = scales * module.tensor("weight_scale_2").reshape(1)
    if module.has("weight_global_scale"):
        scales = scales / module.tensor("weight_global_scale").reshape(1)
    values = _FP4_VALUES[np.stack([pairs & 15, pairs >> 4], axis=2).reshape(len(pairs), -1)]
    _check_scales(scales)
    return np.asarray(values * scales[:, _in_order(values.shape[1], scales.shape[1])], np.float32)


def _fp4_pairs(module: Module) -> Array:
    return module.integers("weight_packed" if module.has("weight_packed") else "weight", 2)


def nf4(module: Module) -> Array:
    """Nibbles are indices into quant_map, the high one first; absmax of each block may be quantised itself. As f32."""
    state = _nf4_state(module)
    largest = module.tensor("weight.absmax").reshape(-1)
    if module.has("weight.nested_absmax"):
        nested = _of_blocks(module.tensor("weight.nested_absmax"), int(state["nested_blocksize"]), largest.size)
        values = module.tensor("weight.nested_quant_map")[largest.astype(np.uint8)]
        largest = values * nested + np.float32(state["nested_offset"])
    data = module.integers("weight", 2).reshape(-1)
    codes = np.stack([data >> 4, data & 15], axis=1).reshape(-1)
    wide = _of_blocks(largest.astype(np.float32), int(state["blocksize"]), codes.size)
    return (module.tensor("weight.quant_map")[codes] * wide).reshape(tuple(state["shape"]))


def _of_blocks(values: Array, block_size: int, size: int) -> Array:
    """The value of each of `size` elements, where a block of them shares one."""
    if block_size < 1 or values.size != -(-size // block_size):
        raise CheckpointError(f"{values.size} scales are not one for each {block_size} of {size} weights")
    return np.asarray(values.reshape(-1)[np.arange(size) // block_size])


def _nf4_state(module: Module) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(bytes(module.tensor("weight.quant_state.bitsandbytes__nf4").astype(np.uint8)))
    return state


def _in_order(columns: int, groups: int) -> Array:
    if not groups or columns % groups:
        raise CheckpointError(f"{columns} columns do not divide into {groups} groups; is the checkpoint complete?")
    return np.arange(columns) // (columns // groups)


def _grouped(codes: Array, scales: Array, zeros: Array, group_of: Array, bits: int) -> Grouped:
    scales = scales.astype(np.float32)
    _check_scales(scales)
    is_group = group_of.shape == codes.shape[1:] and group_of.min() >= 0 and group_of.max() < scales.shape[1]
    if scales.shape != zeros.shape or len(scales) != len(codes) or not is_group:
        raise CheckpointError(f"codes {codes.shape}, scales {scales.shape} and zeros {zeros.shape} do not fit together")
    return Grouped(codes, scales, zeros, group_of.astype(np.int64), bits)


def _check_scales(scales: Array) -> None:
    if not np.isfinite(scales).all() or not scales.any():
        what = "all its scales are 0" if np.isfinite(scales).all() else "a scale is not a finite number"
        raise CheckpointError(f"{what}; download the checkpoint again")
