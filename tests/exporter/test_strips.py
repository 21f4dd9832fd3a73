"""Strips of rows: all of them, in order, on any number of threads, with the bits of all rows at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pilotfish.exporter.contract import TILE_ROWS
from pilotfish.exporter.packing import pack, unpack
from pilotfish.exporter.quantise import quantise, quantise_strip
from pilotfish.exporter.shards import ShardFile
from pilotfish.exporter.strips import in_strips

if TYPE_CHECKING:
    from pathlib import Path

SIZES = [(1, 1), (31, 4096), (33, 4096), (1000, 4096), (9, 1 << 20), (100_000, 2), (5, 0), (0, 64)]


@pytest.mark.parametrize(("num_rows", "num_columns"), SIZES)
def test_strips_are_all_rows_in_order(num_rows: int, num_columns: int) -> None:
    strips = list(in_strips(lambda start, end: (start, end), num_rows, num_columns))
    assert [row for start, end in strips for row in range(start, end)] == list(range(num_rows))
    assert all(start % (2 * TILE_ROWS) == 0 for start, _ in strips)


def test_a_strip_that_fails_ends_the_work_with_its_error() -> None:
    def fail(start: int, _end: int) -> None:
        if start:
            raise ValueError(f"at {start}")

    threads = threading.active_count()
    with pytest.raises(ValueError, match="at 32"):
        list(in_strips(fail, 4096, 4096))
    assert threading.active_count() == threads


@pytest.mark.parametrize("format_name", ["int4", "int4_asym", "int8"])
def test_rows_have_the_same_bits_in_any_strip(format_name: str) -> None:
    rows = np.random.default_rng(5).standard_normal((200, 4096), dtype=np.float32)
    rows[3] = 0
    rows[4] *= np.float32(1e-7)
    whole, found = quantise_strip(rows, format_name), quantise(rows, format_name)
    alone = [quantise_strip(rows[index : index + 1], format_name) for index in range(len(rows))]
    for name in ("codes", "scale", "offset"):
        if getattr(whole, name) is not None:
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
            np.testing.assert_array_equal(np.concatenate([getattr(row, name) for row in alone]), getattr(whole, name))
    packed = [pack(found.rows(start, start + 32), format_name) for start in range(0, len(rows), 32)]
    np.testing.assert_array_equal(np.concatenate(packed), pack(whole, format_name))
    np.testing.assert_array_equal(unpack(np.concatenate(packed), *rows.shape, format_name), found.dequantise())


def test_tensors_are_read_as_safetensors_reads_them(tmp_path: Path) -> None:
    numbers = torch.arange(-30, 30).reshape(5, 3, 4)
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
    integers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool)
    tensors = {str(kind): numbers.to(kind) for kind in (*kinds, *integers)}
    tensors |= {"number": torch.tensor(3.5), "empty": torch.empty(0, 7)}
    save_file(tensors, tmp_path / "x.safetensors")
    file = ShardFile(tmp_path / "x.safetensors")
    assert sorted(file.names()) == sorted(tensors)
    for name, expected in tensors.items():
        found = file.read(name)
        assert (found.dtype, file.shape(name)) == (expected.dtype, tuple(expected.shape))
        assert bits(found) == bits(expected), name
        if expected.ndim == numbers.ndim:
            assert bits(file.read_rows(name, 1, 4)) == bits(expected[1:4]), name


def bits(tensor: torch.Tensor) -> bytes:
    """Of types that numpy does not have, too."""
    return b"" if tensor.numel() == 0 else tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
