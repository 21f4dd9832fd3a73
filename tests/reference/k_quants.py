"""Q4_K and Q6_K blocks of GGUF from floats, which the gguf package can only read. Rounds to nearest, no search."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_COLUMNS = 256


def quantise_q4_k(rows: Array) -> Array:
    """[rows, columns] -> bytes: f16 d and dmin, 12 bytes of 6-bit factors, 128 bytes of codes a block."""
    blocks = rows.reshape(-1, 8, 32).astype(np.float32)
    least = np.minimum(blocks.min(axis=2), 0)
    scale = (blocks.max(axis=2) - least) / 15
    d, scale_factors = _factors(scale, 63)
    dmin, offset_factors = _factors(-least, 63)
    step = d[:, None] * scale_factors
    codes = (blocks + (dmin[:, None] * offset_factors)[..., None]) / np.where(step > 0, step, 1)[..., None]
    codes = np.clip(np.rint(codes), 0, 15).astype(np.uint8)
    low, high = scale_factors.astype(np.uint8), offset_factors.astype(np.uint8)
    packed = np.concatenate(
        [
            low[:, :4] | ((low[:, 4:] >> 4) << 6),
            high[:, :4] | ((high[:, 4:] >> 4) << 6),
            (low[:, 4:] & 15) | ((high[:, 4:] & 15) << 4),
        ],
        axis=1,
    )
    data = (codes[:, 0::2] | (codes[:, 1::2] << 4)).reshape(len(codes), -1)
    return np.concatenate([_halves(d), _halves(dmin), packed, data], axis=1).reshape(len(rows), -1)


def quantise_q6_k(rows: Array) -> Array:
    """[rows, columns] -> bytes: 128 bytes of low bits, 64 of high bits, 16 factors and f16 d a block."""
    blocks = rows.reshape(-1, 16, 16).astype(np.float32)
    d, factors = _factors(np.abs(blocks).max(axis=2) / 31, 127)
    step = d[:, None] * factors
    codes = np.rint(blocks / np.where(step > 0, step, 1)[..., None])
    codes = (np.clip(codes, -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)  # two halves of four times 32 columns
    low = codes & 15
    low_bits = np.concatenate([low[:, :, 0] | (low[:, :, 2] << 4), low[:, :, 1] | (low[:, :, 3] << 4)], axis=2)
    high = codes >> 4
    high_bits = high[:, :, 0] | (high[:, :, 1] << 2) | (high[:, :, 2] << 4) | (high[:, :, 3] << 6)
    parts = [low_bits.reshape(len(codes), -1), high_bits.reshape(len(codes), -1)]
    return np.concatenate([*parts, factors.astype(np.int8).view(np.uint8), _halves(d)], axis=1).reshape(len(rows), -1)


def _factors(values: Array, most: int) -> tuple[Array, Array]:
    """f16 scale of a block, as f32, and its integer factors up to `most`."""
    d = (values.max(axis=1) / most).astype(np.float16).astype(np.float32)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    return d, np.clip(np.rint(values * inverse[:, None]), 0, most)


def _halves(values: Array) -> Array:
    return np.ascontiguousarray(values.astype(np.float16)[:, None]).view(np.uint8)
