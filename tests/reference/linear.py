"""Packed weights and the operators Embedding and Linear, written from GRAPH.md in plain numpy: slow and obvious."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = ("int4", "int4_asym", "int8", "f16", "f32")
INT_FORMATS = ("int4", "int4_asym", "int8")
TILE_ROWS, BLOCK, GROUP = 16, 32, 64


def pad(matrix: NDArray[np.generic], rows: int, columns: int) -> NDArray[np.generic]:
    out = np.zeros((rows, columns), matrix.dtype)
    out[: matrix.shape[0], : matrix.shape[1]] = matrix
    return out


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class Weight:
    """A weight [rows, columns] in one format: integers q, scale and offset of each block, and the values they mean."""

    def __init__(self, values: NDArray[np.float32], fmt: str) -> None:
        self.format, (self.rows, self.columns) = fmt, values.shape
        padded = pad(values, round_up(self.rows, TILE_ROWS), round_up(self.columns, GROUP))
        if fmt in INT_FORMATS:
            self._quantise(padded.reshape(padded.shape[0], -1, BLOCK))
        else:
            self.values = padded.astype(np.float16 if fmt == "f16" else np.float32).astype(np.float32)

    def _quantise(self, blocks: NDArray[np.float32]) -> None:
        self.offset = np.zeros(blocks.shape[:2], np.float32)
        if self.format == "int4_asym":
            low, high = blocks.min(axis=2), blocks.max(axis=2)
            scale, self.offset = (high - low) / 15, low.astype(np.float16).astype(np.float32)
            self.least, self.most = 0, 15
        else:
            self.least, self.most = (-8, 7) if self.format == "int4" else (-127, 127)
            scale = np.abs(blocks).max(axis=2) / self.most
        self.scale = scale.astype(np.float16).astype(np.float32)
        safe = np.where(self.scale == 0, 1, self.scale)[:, :, None]
        quantised = np.rint((blocks - self.offset[:, :, None]) / safe)
        self.q = np.clip(quantised, self.least, self.most).astype(np.int32)
        # Multiplied, rounded, then added to: the bits of Q4_1.
        self.values = (self.q.astype(np.float32) * self.scale[:, :, None] + self.offset[:, :, None]).reshape(
            blocks.shape[0], -1
        )

    def packed(self) -> NDArray[np.uint8]:
        """The bytes of GRAPH.md."""
        if self.format not in INT_FORMATS:
            dtype = np.float16 if self.format == "f16" else np.float32
            tiles = self.values.astype(dtype).reshape(-1, TILE_ROWS, self.values.shape[1])
            return np.frombuffer(np.ascontiguousarray(tiles.transpose(0, 2, 1)).tobytes(), np.uint8).copy()
        out = bytearray()
        for tile in range(0, self.q.shape[0], TILE_ROWS):
            for block in range(0, self.q.shape[1], 2):
                for b in (block, block + 1):
                    out += self._pack_block(self.q[tile : tile + TILE_ROWS, b])
                for values in (self.scale, self.offset)[: 2 if self.format == "int4_asym" else 1]:
                    out += values[tile : tile + TILE_ROWS, block : block + 2].T.astype(np.float16).tobytes()
        return np.frombuffer(bytes(out), np.uint8).copy()

    def _pack_block(self, q: NDArray[np.int32]) -> bytes:
        """One block: q [16 rows, 32 columns] -> [quad][row][4 bytes]."""
        if self.format == "int8":
            return bytes((q + 128).astype(np.uint8).reshape(TILE_ROWS, 8, 4).transpose(1, 0, 2).tobytes())
        stored = (q + (8 if self.format == "int4" else 0)).astype(np.uint8)
        both = stored[:, :16] | (stored[:, 16:] << 4)
        return bytes(both.reshape(TILE_ROWS, 4, 4).transpose(1, 0, 2).tobytes())


def embedding(ids: NDArray[np.int32], weight: Weight, scale: float) -> NDArray[np.float32]:
    return weight.values[ids, : weight.columns] * np.float32(scale)


def rms_norm(x: NDArray[np.float32], norm_weight: NDArray[np.float32], epsilon: float) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + epsilon) * norm_weight


def quantise_rows(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is left of activations after int8 quantisation a block of 32."""
    padded = pad(x, x.shape[0], round_up(x.shape[1], BLOCK))
    blocks = padded.reshape(x.shape[0], -1, BLOCK)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    safe = np.where(largest == 0, 1, largest)
    return (np.rint(blocks * (127 / safe)) * (largest / 127)).reshape(x.shape[0], -1)[:, : x.shape[1]]


def refined(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is left where an uneven row, of which one block dwarfs the others, has two parts."""
    padded = pad(rows, rows.shape[0], round_up(rows.shape[1], GROUP))
    largest = np.abs(padded).reshape(rows.shape[0], -1, BLOCK).max(axis=2)
    is_uneven = largest.max(axis=1) > 16 * largest.mean(axis=1)
    quantised = quantise_rows(rows)
    return np.where(is_uneven[:, None], quantised + quantise_rows(rows - quantised), quantised)


def swiglu_rows(out_features: int) -> NDArray[np.int64]:
    """Row of [gate; up] that each packed row holds: tiles of 16 gate rows and 16 up rows in turn."""
    half = out_features // 2
    return np.stack([np.arange(half).reshape(-1, 16), np.arange(half, out_features).reshape(-1, 16)], axis=1).reshape(
        -1
    )


def linear(
    x: NDArray[np.float32],
    weight: Weight,
    *,
    bias: NDArray[np.float32] | None = None,
    norm_weight: NDArray[np.float32] | None = None,
    residual: NDArray[np.float32] | None = None,
    swiglu: bool = False,
    epsilon: float = 1e-5,
) -> NDArray[np.float64]:
    """Linear in double precision. With swiglu, weight and bias are in packed order."""
    rows: NDArray[np.float64] = x.astype(np.float64)
    if norm_weight is not None:
        rows = rms_norm(x, norm_weight, epsilon)
    if weight.format in INT_FORMATS:
        rows = refined(rows) if swiglu else quantise_rows(rows)
    y = rows @ weight.values[: weight.rows, : weight.columns].astype(np.float64).T
    if bias is not None:
        y = y + bias
    if swiglu:
        tiles = y.reshape(y.shape[0], -1, 2, 16)
        gate, up = tiles[:, :, 0].reshape(y.shape[0], -1), tiles[:, :, 1].reshape(y.shape[0], -1)
        y = gate / (1 + np.exp(-gate)) * up
    return y if residual is None else y + residual
