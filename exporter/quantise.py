"""f32 rows -> integers with one scale a block of 32 columns, and back. Knows nothing about how they are packed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pilotfish.bindings.calls import fit_int4_scales

from .contract import BLOCK_COLUMNS
from .strips import in_strips

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, np.dtype[Any]]

# Candidates of the int4 scale search: fractions of the extreme value, which map it near -8.
_CANDIDATES = np.linspace(0.72, 1.08, 13, dtype=np.float32) / np.float32(-8)


@dataclass(frozen=True, slots=True)
class Quantised:
    """w[row, column] = scale[row, block] * codes[row, column] (+ offset[row, block])."""

    codes: Array  # [rows, columns] int8; 0..15 for int4_asym
    scale: Array  # [rows, columns / 32] f16
    offset: Array | None = None  # [rows, columns / 32] f16

    def rows(self, start: int, end: int) -> Quantised:
        """Some of them."""
        offset = None if self.offset is None else self.offset[start:end]
        return Quantised(self.codes[start:end], self.scale[start:end], offset)

    def dequantise(self) -> Array:
        """[rows, columns] f32."""
        blocks = _blocks(self.codes).astype(np.float32) * self.scale.astype(np.float32)[..., None]
        if self.offset is not None:
            blocks += self.offset.astype(np.float32)[..., None]
        return np.asarray(blocks.reshape(self.codes.shape))


def quantise(rows: Array, format_name: str) -> Quantised:
    """Quantises f32 [rows, columns], columns a multiple of 32, to "int4", "int4_asym" or "int8"."""
    strips = in_strips(lambda start, end: quantise_strip(rows[start:end], format_name), *rows.shape)
    return joined(list(strips)) or quantise_strip(rows, format_name)  # of no rows


def joined(strips: Sequence[Quantised | None]) -> Quantised | None:
    """All rows of all strips; None where one is missing, or there are none."""
    found = [strip for strip in strips if strip is not None]
    if not found or len(found) < len(strips):
        return None
    offsets = [strip.offset for strip in found if strip.offset is not None]
    return Quantised(
        np.concatenate([strip.codes for strip in found]),
        np.concatenate([strip.scale for strip in found]),
        np.concatenate(offsets) if offsets else None,
    )


def quantise_strip(rows: Array, format_name: str) -> Quantised:
    """The same for rows that are few enough for a core's cache."""
    blocks = _blocks(rows)
    codes, scale, offset = {"int4": _int4, "int4_asym": _int4_asym, "int8": _int8}[format_name](blocks)
    return Quantised(codes.reshape(rows.shape), scale, offset)


def _blocks(rows: Array) -> Array:
    return rows.reshape(rows.shape[0], -1, BLOCK_COLUMNS)


def _inverse(scale: Array) -> Array:
    """1 / scale, 0 where the scale is 0."""
    wide = scale.astype(np.float32)
    return np.divide(1.0, wide, out=np.zeros_like(wide), where=wide != 0)


def _int8(blocks: Array) -> tuple[Array, Array, None]:
    scale = (np.abs(blocks).max(axis=2) / np.float32(127)).astype(np.float16)
    codes = np.rint(blocks * _inverse(scale)[..., None])
    return np.clip(codes, -127, 127).astype(np.int8), scale, None


def _int4(blocks: Array) -> tuple[Array, Array, None]:
    """Least squared error over scales that put the extreme value near -8 (the sign of the scale follows it)."""
    scale = fit_int4_scales(blocks, _CANDIDATES).astype(np.float16)
    codes = np.empty_like(blocks)
    _int4_codes(blocks, scale, out=codes)
    return codes.astype(np.int8), scale, None


def _int4_codes(blocks: Array, scale: Array, *, out: Array) -> None:
    np.multiply(blocks, _inverse(scale)[..., None], out=out)
    np.rint(out, out=out)
    np.clip(out, -8, 7, out=out)


def _int4_asym(blocks: Array) -> tuple[Array, Array, Array]:
    """W = scale * q + offset, q in 0..15: the range of the block, then one least-squares refit of scale and offset."""
    low, high = blocks.min(axis=2), blocks.max(axis=2)
    first = ((high - low) / np.float32(15), low)
    (codes, scale, offset, error), refitted = (_asym_trial(blocks, *line) for line in (first, _refit(blocks, *first)))
    better = refitted[3] < error
    return (
        np.where(better[..., None], refitted[0], codes).astype(np.int8),
        np.where(better, refitted[1], scale),
        np.where(better, refitted[2], offset),
    )


def _asym_trial(blocks: Array, wide_scale: Array, wide_offset: Array) -> tuple[Array, Array, Array, Array]:
    """Codes, f16 scale and offset of a line, and the squared error of each block."""
    scale, offset = wide_scale.astype(np.float16), wide_offset.astype(np.float16)
    codes = _asym_codes(blocks, scale, offset)
    rebuilt = codes * scale.astype(np.float32)[..., None] + offset.astype(np.float32)[..., None]
    return codes, scale, offset, np.square(blocks - rebuilt).sum(axis=2)


def _asym_codes(blocks: Array, scale: Array, offset: Array) -> Array:
    codes = np.rint((blocks - offset.astype(np.float32)[..., None]) * _inverse(scale)[..., None])
    return np.clip(codes, 0, 15, out=codes)


def _refit(blocks: Array, scale: Array, offset: Array) -> tuple[Array, Array]:
    """Least-squares line through (code, weight) of each block."""
    codes = _asym_codes(blocks, scale, offset)
    code_mean, weight_mean = codes.mean(axis=2), blocks.mean(axis=2)
    centred = codes - code_mean[..., None]
    spread = np.square(centred).sum(axis=2)
    slope = np.divide((centred * blocks).sum(axis=2), spread, out=np.zeros_like(spread), where=spread > 0)
    return slope, weight_mean - slope * code_mean
