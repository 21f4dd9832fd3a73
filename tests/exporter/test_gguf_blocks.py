"""Blocks whose integers a format holds are taken over as they are; the gguf package says what they mean."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from tiny_gguf import Type

from pilotfish.exporter.formats import MatrixFormats, keeps
from pilotfish.exporter.gguf.blocks import fill_values, keeps_integers, unpack_blocks
from pilotfish.exporter.quantise import quantise

ROWS, COLUMNS = 24, 512
KINDS = ("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "MXFP4")
FORMATS = ("int4", "int4_asym", "int8")
ROUNDED_SCALES = {"Q4_K", "IQ4_XS"}


def random_blocks(kind: str) -> np.ndarray:
    """Bytes of rows: any integers, and scales and factors of the size that weights have."""
    rng = np.random.default_rng(11)
    columns, size = gguf.GGML_QUANT_SIZES[Type[kind]]
    blocks = rng.integers(0, 256, (ROWS, COLUMNS // columns, size), dtype=np.uint8)
    halves = rng.uniform(0.002, 0.01, (ROWS, COLUMNS // columns, 2)).astype(np.float16).view(np.uint8)
    if kind == "MXFP4":
        blocks[:, :, 0] = rng.integers(118, 124, blocks.shape[:2])
    elif kind in ("Q4_1", "Q4_K"):
        blocks[:, :, :4] = halves
    elif kind == "Q3_K":
        blocks[:, :, -2:] = halves[:, :, :2]
    else:
        blocks[:, :, :2] = halves[:, :, :2]
    if kind == "Q8_0":
        blocks[:, :, 2:][blocks[:, :, 2:] == 128] = 0  # -128, which no writer of Q8_0 makes
    return blocks.reshape(ROWS, -1)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_block_means_what_it_meant(kind: str, format_name: str) -> None:
    data = random_blocks(kind)
    found = unpack_blocks(data, kind, format_name)
    assert (found is not None) == keeps_integers(kind, format_name) == keeps(kind, format_name)
    if found is not None:
        expected = gguf.dequantize(data, Type[kind])
        error = np.abs(found.dequantise() - expected).max() / np.abs(expected).max()
        assert error <= (5e-4 if kind in ROUNDED_SCALES else 0.0)
        assert found.codes.min() >= (0 if format_name == "int4_asym" else -127)


@pytest.mark.parametrize("kind", KINDS)
def test_values_have_the_packages_bits(kind: str) -> None:
    data = random_blocks(kind)
    found = np.empty((ROWS, COLUMNS), np.float32)
    fill_values(data, Type[kind], found)
    np.testing.assert_array_equal(found, gguf.dequantize(data, Type[kind]))


def test_every_kind_is_kept_by_some_format() -> None:
    assert {kind for kind in KINDS if any(keeps_integers(kind, name) for name in FORMATS)} == set(KINDS)


def test_what_int8_cannot_hold_is_quantised_anew() -> None:
    data = random_blocks("Q8_0")
    data[3, 7] = 128  # -128
    assert unpack_blocks(data, "Q8_0", "int8") is None
    wide = random_blocks("MXFP4")
    wide[5, 0] = 90  # a scale of 2^-38, which f16 has not
    assert unpack_blocks(wide, "MXFP4", "int8") is None
    wide[5, 0] = 200
    assert unpack_blocks(wide, "MXFP4", "int8") is None


def test_blocks_of_three_bits_take_the_four_that_lose_less() -> None:
    values = gguf.dequantize(random_blocks("Q3_K"), Type.Q3_K)
    errors = {name: np.square(quantise(values, name).dequantise() - values).sum() for name in ("int4", "int4_asym")}
    chosen = MatrixFormats(pinned={}, asked=(), stored={"w": "Q3_K"}).of("linear", ("w",))
    assert chosen == min(errors, key=lambda name: errors[name])
