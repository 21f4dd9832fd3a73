"""Packed bytes against the oracle in tests/reference, and the quantisers' errors."""

from __future__ import annotations

import numpy as np
import pytest
from reference.linear import Weight

from pilotfish.exporter.contract import FORMATS
from pilotfish.exporter.packing import interleave, pack, pack_float, packed_bytes, separate, unpack
from pilotfish.exporter.quantise import Quantised, quantise

SHAPES = ((16, 64), (48, 128), (37, 96), (5, 32))  # the last two are padded in rows and columns
LOW_BIT = ("int4", "int4_asym", "int8")


def random_rows(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format_name", LOW_BIT)
def test_bytes_equal_the_oracles(format_name: str, shape: tuple[int, int]) -> None:
    weight = Weight(random_rows(*shape), format_name)
    rows, columns = shape
    codes = weight.q.reshape(weight.q.shape[0], -1)[:rows, :columns].astype(np.int8)
    scale = weight.scale[:rows, : columns // 32].astype(np.float16)
    offset = weight.offset[:rows, : columns // 32].astype(np.float16) if format_name == "int4_asym" else None
    packed = pack(Quantised(codes, scale, offset), format_name)
    assert packed.nbytes == packed_bytes(rows, columns, format_name)
    np.testing.assert_array_equal(packed, weight.packed())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format_name", ["f16", "f32"])
def test_float_bytes_equal_the_oracles(format_name: str, shape: tuple[int, int]) -> None:
    rows = random_rows(*shape)
    np.testing.assert_array_equal(pack_float(rows, format_name), Weight(rows, format_name).packed())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format_name", FORMATS)
def test_unpack_gives_back_the_stored_values(format_name: str, shape: tuple[int, int]) -> None:
    rows = random_rows(*shape)
    if format_name in LOW_BIT:
        quantised = quantise(rows, format_name)
        packed, expected = pack(quantised, format_name), quantised.dequantise()
    else:
        packed = pack_float(rows, format_name)
        expected = rows.astype(np.float16 if format_name == "f16" else np.float32).astype(np.float32)
    np.testing.assert_array_equal(unpack(packed, *shape, format_name), expected)


def test_interleaved_tiles_alternate() -> None:
    gate, up = np.arange(32)[:, None], 100 + np.arange(32)[:, None]
    rows = interleave(gate, up)
    assert rows[:, 0].tolist() == [*range(16), *range(100, 116), *range(16, 32), *range(116, 132)]
    np.testing.assert_array_equal(separate(rows)[0], gate)
    np.testing.assert_array_equal(separate(rows)[1], up)


@pytest.mark.parametrize("format_name", LOW_BIT)
def test_codes_stay_in_range_and_zero_blocks_stay_zero(format_name: str) -> None:
    rows = random_rows(16, 64) * np.logspace(-6, 3, 16, dtype=np.float32)[:, None]
    rows[3, 32:] = 0
    quantised = quantise(rows, format_name)
    low, high = {"int4": (-8, 7), "int4_asym": (0, 15), "int8": (-127, 127)}[format_name]
    assert quantised.codes.min() >= low
    assert quantised.codes.max() <= high
    assert not quantised.dequantise()[3, 32:].any()
    assert np.isfinite(quantised.dequantise()).all()


def squared_error(rows: np.ndarray, format_name: str) -> float:
    return float(np.square(rows - quantise(rows, format_name).dequantise()).mean())


def test_int4_search_beats_the_largest_value_rule() -> None:
    rows = random_rows(512, 256)
    blocks = rows.reshape(512, -1, 32)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)
    scale = (extreme / -8).astype(np.float16).astype(np.float32)
    plain = np.clip(np.rint(blocks / scale), -8, 7) * scale
    assert squared_error(rows, "int4") < 0.9 * np.square(blocks - plain).mean()


def test_errors_fall_with_the_number_of_bits() -> None:
    rows = random_rows(256, 256)
    errors = [squared_error(rows, name) for name in ("int4", "int4_asym", "int8")]
    assert errors[0] < 0.01
    assert errors[1] < 0.01
    assert errors[2] < 1e-4


def test_integers_of_an_exact_grid_are_found_again() -> None:
    codes = np.random.default_rng(1).integers(-127, 128, (16, 64)).astype(np.int8)
    codes[:, ::32] = 127
    original = Quantised(codes, np.full((16, 2), 0.013, np.float16))
    again = quantise(original.dequantise(), "int8")
    np.testing.assert_array_equal(again.codes, codes)
    np.testing.assert_array_equal(again.scale, original.scale)
