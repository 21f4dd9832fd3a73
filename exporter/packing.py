"""Quantised rows <-> the packed bytes of native/GRAPH.md: tiles of 16 rows, groups of 64 columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from .buffers import Buffers
from .contract import BLOCK_COLUMNS, GROUP_BYTES, GROUP_COLUMNS, TILE_ROWS
from .quantise import Quantised
from .strips import fill_in_strips

Array = np.ndarray[Any, np.dtype[Any]]
_BLOCKS = GROUP_COLUMNS // BLOCK_COLUMNS  # of a group
_FLOAT_TYPES = {"f16": np.float16, "f32": np.float32}
_ZERO_POINT = {"int4": 8, "int4_asym": 0, "int8": 128}


def padded(count: int, unit: int) -> int:
    """`count` rounded up to a multiple of `unit`."""
    return -(-count // unit) * unit


def packed_bytes(num_rows: int, num_columns: int, format_name: str) -> int:
    """Size of a packed matrix."""
    tiles, groups = padded(num_rows, TILE_ROWS) // TILE_ROWS, padded(num_columns, GROUP_COLUMNS) // GROUP_COLUMNS
    return tiles * groups * GROUP_BYTES[format_name]


def pack_float(rows: Array, format_name: str) -> Array:
    """[rows, columns] floats -> u8 bytes: [tile][group][64 columns][16 rows]."""
    tiles = _tiles(_pad(rows, GROUP_COLUMNS), GROUP_COLUMNS).astype(_FLOAT_TYPES[format_name])
    return np.ascontiguousarray(tiles.transpose(0, 2, 3, 1)).view(np.uint8).reshape(-1)


def pack(quantised: Quantised, format_name: str) -> Array:
    """Integers and scales -> u8 bytes in tile, group order."""
    codes = _tiles(_pad(quantised.codes, GROUP_COLUMNS), BLOCK_COLUMNS)  # [tile, row, block, 32]
    codes = (codes.astype(np.int16) + _ZERO_POINT[format_name]).astype(np.uint8)
    quads = codes.reshape(*codes.shape[:3], -1, 4)  # [tile, row, block, 8 quads, 4]
    if format_name != "int8":
        quads = quads[:, :, :, :4] | (quads[:, :, :, 4:] << 4)
    data = quads.transpose(0, 2, 3, 1, 4)  # [tile, block, quad, row, 4]
    parts = [_grouped(data)]
    for values in (quantised.scale, quantised.offset):
        if values is not None:
            per_block = _tiles(_pad(values, _BLOCKS), 1)[..., 0].transpose(0, 2, 1)  # [tile, block, row]
            parts.append(_grouped(np.ascontiguousarray(per_block).view(np.uint8)))
    return np.concatenate(parts, axis=2).reshape(-1)


def unpack(packed: Array, num_rows: int, num_columns: int, format_name: str, buffers: Buffers | None = None) -> Array:
    """Packed bytes -> the f32 [rows, columns] they stand for, in memory of their own or of the buffers."""
    tile_bytes = packed_bytes(TILE_ROWS, num_columns, format_name)
    found = (buffers or Buffers()).empty((num_rows, num_columns))

    def strip(start: int, end: int) -> None:
        tiles = slice(start // TILE_ROWS * tile_bytes, -(-end // TILE_ROWS) * tile_bytes)
        found[start:end] = _unpack_strip(packed[tiles], end - start, num_columns, format_name)

    fill_in_strips(strip, num_rows, num_columns)
    return found


def _unpack_strip(packed: Array, num_rows: int, num_columns: int, format_name: str) -> Array:
    tiles = padded(num_rows, TILE_ROWS) // TILE_ROWS
    groups = packed.reshape(tiles, -1, GROUP_BYTES[format_name])
    if format_name in _FLOAT_TYPES:
        values = groups.view(_FLOAT_TYPES[format_name]).reshape(tiles, -1, TILE_ROWS).transpose(0, 2, 1)
        return np.asarray(values.reshape(tiles * TILE_ROWS, -1)[:num_rows, :num_columns], dtype=np.float32)
    data_bytes = _BLOCKS * BLOCK_COLUMNS * TILE_ROWS // (1 if format_name == "int8" else 2)
    data = groups[:, :, :data_bytes].reshape(tiles, -1, data_bytes // (_BLOCKS * TILE_ROWS * 4), TILE_ROWS, 4)
    if format_name != "int8":
        data = np.concatenate([data & 15, data >> 4], axis=2)
    codes = (data.astype(np.int16) - _ZERO_POINT[format_name]).transpose(0, 3, 1, 2, 4)
    scales = np.ascontiguousarray(groups[:, :, data_bytes:]).view(np.float16)
    scales = scales.reshape(tiles, scales.shape[1], -1, _BLOCKS, TILE_ROWS).transpose(2, 0, 4, 1, 3)
    scales = scales.reshape(scales.shape[0], tiles * TILE_ROWS, -1)
    rows = codes.reshape(tiles * TILE_ROWS, -1).astype(np.int8)
    unpacked = Quantised(rows, scales[0], scales[1] if len(scales) > 1 else None).dequantise()
    return unpacked[:num_rows, :num_columns]


def interleave(gate: Array, up: Array) -> Array:
    """Rows in alternating tiles: gate 0..15, up 0..15, gate 16..31, ...; any trailing axes."""
    pair = np.stack([part.reshape(-1, TILE_ROWS, *part.shape[1:]) for part in (gate, up)], axis=1)
    return pair.reshape(-1, *gate.shape[1:])


def separate(rows: Array) -> tuple[Array, Array]:
    """Inverse of `interleave`."""
    pair = rows.reshape(-1, 2, TILE_ROWS, *rows.shape[1:])
    return pair[:, 0].reshape(-1, *rows.shape[1:]), pair[:, 1].reshape(-1, *rows.shape[1:])


def _pad(rows: Array, columns: int) -> Array:
    """Zero rows up to a multiple of 16 and zero columns up to a multiple of `columns`."""
    missing_rows = padded(rows.shape[0], TILE_ROWS) - rows.shape[0]
    missing_columns = padded(rows.shape[1], columns) - rows.shape[1]
    if missing_rows == missing_columns == 0:
        return rows
    return np.pad(rows, ((0, missing_rows), (0, missing_columns)))


def _tiles(rows: Array, columns: int) -> Array:
    """[rows, all columns] -> [tile, 16 rows, block, columns]."""
    return rows.reshape(rows.shape[0] // TILE_ROWS, TILE_ROWS, -1, columns)


def _grouped(per_block: Array) -> Array:
    """[tile, block, ...] bytes -> [tile, group, bytes]."""
    tiles, blocks = per_block.shape[:2]
    return np.ascontiguousarray(per_block).reshape(tiles, blocks // _BLOCKS, -1)
