"""Integers with a scale, and perhaps a zero point, for each group of input columns of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pilotfish.exporter.contract import BLOCK_COLUMNS
from pilotfish.exporter.quantise import Quantised

Array = np.ndarray[Any, np.dtype[Any]]
_MIDDLE = {4: 8, 8: 128}  # the zero point of symmetric codes, by their bits
_LEAST_INT8 = -127


@dataclass(frozen=True, slots=True)
class Grouped:
    """w[row, column] = scale[row, group] * (codes[row, column] - zeros[row, group])."""

    codes: Array  # [rows, columns] u8
    scale: Array  # [rows, groups] f32
    zeros: Array  # [rows, groups] i32
    group_of: Array  # [columns] the group of each column
    bits: int

    def dequantise(self) -> Array:
        """[rows, columns] f32."""
        zeros, scale = self.zeros[:, self.group_of], self.scale[:, self.group_of]
        return np.asarray((self.codes.astype(np.int32) - zeros) * scale, np.float32)

    def kind(self) -> str:
        """What `formats` calls it: bits, and whether blocks of 32 columns can have the scales as they are."""
        if not self.has_blocks():
            return f"W{self.bits} IN ANY ORDER"
        return f"W{self.bits}" if (self.zeros == _MIDDLE[self.bits]).all() else f"W{self.bits} WITH ZEROS"

    def has_blocks(self) -> bool:
        """Whether each block of 32 columns lies in one group."""
        if self.codes.shape[1] % BLOCK_COLUMNS:
            return False
        blocks = self.group_of.reshape(-1, BLOCK_COLUMNS)
        return bool((blocks == blocks[:, :1]).all())

    def blocks(self, format_name: str) -> Quantised | None:
        """The same integers in a format, if it holds them."""
        if not self.has_blocks():
            return None
        of_block = self.group_of[::BLOCK_COLUMNS]
        scale, zeros = self.scale[:, of_block], self.zeros[:, of_block]
        halves = scale.astype(np.float16)
        if not np.isfinite(halves).all():
            return None
        wide = np.repeat(zeros, BLOCK_COLUMNS, axis=1)
        signed = self.codes.astype(np.int32) - wide
        if format_name == "int8" and signed.min() >= _LEAST_INT8 and signed.max() <= -_LEAST_INT8:
            return Quantised(signed.astype(np.int8), halves)
        if format_name == "int4" and self.bits == 4 and (zeros == _MIDDLE[4]).all():  # noqa: PLR2004 - a nibble
            return Quantised(signed.astype(np.int8), halves)
        if format_name == "int4_asym" and self.bits == 4:  # noqa: PLR2004 - as above
            offset = (-halves.astype(np.float32) * zeros).astype(np.float16)
            return Quantised(self.codes.astype(np.int8), halves, offset) if np.isfinite(offset).all() else None
        return None
