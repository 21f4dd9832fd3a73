"""Quantised rows <-> the packed bytes of native/GRAPH.md: tiles of 16 rows, groups of 64 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .buffers import Buffers
from .contract import BLOCK_COLUMNS, GROUP_BYTES, GROUP_COLUMNS, TILE_ROWS
from .strips import fill_in_strips

if TYPE_CHECKING:
    from .quantise import Quantised

Array = np.ndarray[Any, np.dtype[Any]]
_BLOCKS = GROUP_COLUMNS // BLOCK_COLUMNS  # of a group
_FLOAT_TYPES = {"f16": np.float16, "f32": np.float32}
_HALF_BLOCK = np.dtype(np.complex128)  # 16 integers that are moved as one; nothing is computed with them
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
    rows = _pad(rows, GROUP_COLUMNS)
    num_tiles, num_groups = rows.shape[0] // TILE_ROWS, rows.shape[1] // GROUP_COLUMNS
    found = np.empty((num_tiles, num_groups, GROUP_BYTES[format_name]), np.uint8)
    _by_rows(found.view(_FLOAT_TYPES[format_name]))[...] = rows.reshape(num_tiles, TILE_ROWS, num_groups, -1)
    return found.reshape(-1)


def pack(quantised: Quantised, format_name: str) -> Array:
    """Integers and scales -> u8 bytes in tile, group order."""
    codes = _pad(quantised.codes, GROUP_COLUMNS).view(np.uint8) + np.uint8(_ZERO_POINT[format_name])
    num_tiles, num_groups = codes.shape[0] // TILE_ROWS, codes.shape[1] // GROUP_COLUMNS
    quads = (codes if format_name == "int8" else _nibbles(codes)).reshape(-1).view(np.uint32)
    found = np.empty((num_tiles, num_groups, GROUP_BYTES[format_name]), np.uint8)
    end = _integer_bytes(format_name)
    _by_rows(found[:, :, :end].view(np.uint32))[...] = quads.reshape(num_tiles, TILE_ROWS, num_groups, -1)
    for values in (quantised.scale, quantised.offset):
        if values is not None:
            start, end = end, end + _BLOCKS * TILE_ROWS * values.itemsize
            per_block = _pad(values, _BLOCKS).reshape(num_tiles, TILE_ROWS, num_groups, _BLOCKS)
            _by_rows(found[:, :, start:end].view(values.dtype))[...] = per_block
    return found.reshape(-1)


def _integer_bytes(format_name: str) -> int:
    """Of a group, before its scales."""
    return GROUP_COLUMNS * TILE_ROWS // (1 if format_name == "int8" else 2)


def _by_rows(groups: Array) -> Array:
    """[tile, group, count * 16 rows] -> a view [tile, row, group, count]."""
    return np.asarray(groups.reshape(*groups.shape[:2], -1, TILE_ROWS).transpose(0, 3, 1, 2))


def _nibbles(codes: Array) -> Array:
    """Integers 0..15 of blocks -> bytes, whose low nibbles are the first half of a block's columns."""
    halves = codes.reshape(-1).view(_HALF_BLOCK).reshape(-1, 2)
    low, high = (np.ascontiguousarray(halves[:, side]).view(np.uint32) for side in (0, 1))
    return np.asarray(low | (high << 4))


def _from_nibbles(quads: Array) -> Array:
    """The inverse: u32 of four bytes -> integers 0..15, u8."""
    halves = np.empty((quads.nbytes // _HALF_BLOCK.itemsize, 2), _HALF_BLOCK)
    for side, nibbles in enumerate((quads, quads >> 4)):
        halves[:, side] = (nibbles & np.uint32(0x0F0F0F0F)).reshape(-1).view(_HALF_BLOCK)
    return halves.reshape(-1).view(np.uint8)


def unpack(packed: Array, num_rows: int, num_columns: int, format_name: str, buffers: Buffers | None = None) -> Array:
    """Packed bytes -> the f32 [rows, columns] they stand for, in memory of their own or of the buffers."""
    tile_bytes = packed_bytes(TILE_ROWS, num_columns, format_name)
    found = (buffers or Buffers()).empty((num_rows, num_columns))
    unpack_strip = _unpack_floats if format_name in _FLOAT_TYPES else _unpack_integers

    def strip(start: int, end: int) -> None:
        tiles = packed[start // TILE_ROWS * tile_bytes : -(-end // TILE_ROWS) * tile_bytes]
        num_tiles = tiles.size // tile_bytes
        unpack_strip(tiles.reshape(num_tiles, -1, GROUP_BYTES[format_name]), format_name, found[start:end])

    fill_in_strips(strip, num_rows, num_columns)
    return found


def _unpack_floats(groups: Array, format_name: str, rows: Array) -> None:
    """Bytes [tile, group, bytes] -> f32 rows."""
    values = _by_rows(groups.view(_FLOAT_TYPES[format_name]))
    rows[...] = values.reshape(groups.shape[0] * TILE_ROWS, -1)[: rows.shape[0], : rows.shape[1]]


def _unpack_integers(groups: Array, format_name: str, rows: Array) -> None:
    """The same for integers with scales."""
    data_bytes = _integer_bytes(format_name)
    quads = np.ascontiguousarray(_by_rows(groups[:, :, :data_bytes].view(np.uint32)))
    codes = quads.view(np.uint8) if format_name == "int8" else _from_nibbles(quads)
    codes = (codes - np.uint8(_ZERO_POINT[format_name])).view(np.int8)
    num_rows, num_blocks = rows.shape[0], rows.shape[1] // BLOCK_COLUMNS
    blocks = rows.reshape(num_rows, num_blocks, BLOCK_COLUMNS)
    blocks[...] = codes.reshape(groups.shape[0] * TILE_ROWS, -1, BLOCK_COLUMNS)[:num_rows, :num_blocks]
    halves = _by_rows(groups[:, :, data_bytes:].view(np.float16))  # [tile, row, group, blocks, of scales then offsets]
    for kind, apply in enumerate((np.multiply, np.add)[: halves.shape[3] // _BLOCKS]):
        values = halves[..., kind * _BLOCKS : (kind + 1) * _BLOCKS].astype(np.float32)
        apply(blocks, values.reshape(groups.shape[0] * TILE_ROWS, -1, 1)[:num_rows, :num_blocks], out=blocks)


def interleave(gate: Array, up: Array) -> Array:
    """Rows in alternating tiles: gate 0..15, up 0..15, gate 16..31, ...; any trailing axes."""
    pair = np.stack([part.reshape(-1, TILE_ROWS, *part.shape[1:]) for part in (gate, up)], axis=1)
    return pair.reshape(-1, *gate.shape[1:])


def separate(rows: Array) -> tuple[Array, Array]:
    """Inverse of `interleave`."""
    pair = sides(rows)
    return pair[:, 0].reshape(-1, *rows.shape[1:]), pair[:, 1].reshape(-1, *rows.shape[1:])


def sides(rows: Array) -> Array:
    """A view of interleaved rows, [pair of tiles, side, 16 rows, ...]."""
    return rows.reshape(-1, 2, TILE_ROWS, *rows.shape[1:])


def _pad(rows: Array, columns: int) -> Array:
    """Zero rows up to a multiple of 16 and zero columns up to a multiple of `columns`."""
    missing_rows = padded(rows.shape[0], TILE_ROWS) - rows.shape[0]
    missing_columns = padded(rows.shape[1], columns) - rows.shape[1]
    if missing_rows == missing_columns == 0:
        return rows
    return np.pad(rows, ((0, missing_rows), (0, missing_columns)))
