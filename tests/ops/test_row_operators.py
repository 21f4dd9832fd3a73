"""Operators that pick, join and norm rows, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import row_operators as reference
from reference.run_op import OpRunner, run_op

RTOL = 2e-6  # of the largest output: float32 sums against double
RNG = np.random.default_rng(6)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def norm_attributes(norm: str = "rms", activation: str = "none", epsilon: float = 1e-5) -> dict[str, Any]:
    return {"norm": norm, "activation": activation, "norm_epsilon": epsilon}


@pytest.mark.parametrize("columns", [1, 64, 100])
@pytest.mark.parametrize("rows", [[], [0], [6, 0, 6, 3]])
def test_gather_rows(library: str, columns: int, rows: list[int]) -> None:
    x, picked = floats(7, columns), np.array(rows, np.int32)
    found = run_op(library, "GatherRows", {"x": x, "rows": picked}, {})
    np.testing.assert_array_equal(found, reference.gather_rows(x, picked))


@pytest.mark.parametrize("row", [7, -1])
def test_gather_rows_refuses_rows_that_are_not_there(library: str, row: int) -> None:
    with pytest.raises(Exception, match=rf"rows\[1\] is {row}, not in 0..6"):
        run_op(library, "GatherRows", {"x": floats(7, 3), "rows": np.array([2, row], np.int32)}, {})


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("sizes", [[5], [5, 1], [3, 4, 5], [1, 2, 3, 4, 5, 6, 7, 8]])
def test_join(library: str, axis: int, sizes: list[int]) -> None:
    parts = [floats(size, 6) if axis == 0 else floats(6, size) for size in sizes]
    inputs = {f"x{index}": part for index, part in enumerate(parts)}
    found = run_op(library, "Join", inputs, {"axis": axis})
    np.testing.assert_array_equal(found, reference.join(parts, axis))


@pytest.mark.parametrize(
    ("axis", "shape", "message"),
    [
        (0, (2, 4), r"x1 has shape \[2, 4\], which does not fit x0, \[2, 3\]"),
        (1, (4, 3), "x1 has shape"),
        (2, (2, 3), "axis is 2"),
    ],
)
def test_join_refuses(library: str, axis: int, shape: tuple[int, int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        run_op(library, "Join", {"x0": floats(2, 3), "x1": floats(*shape)}, {"axis": axis})


@pytest.mark.parametrize("num_parts", [1, 2, 3, 6])
def test_rows_part(library: str, num_parts: int) -> None:
    x = floats(6, 5)
    for part in range(num_parts):
        found = run_op(library, "RowsPart", {"x": x}, {"part": part, "num_parts": num_parts})
        np.testing.assert_array_equal(found, reference.rows_part(x, part, num_parts))


@pytest.mark.parametrize(
    ("part", "num_parts", "message"),
    [(0, 4, "rows are no 4 equal parts"), (3, 3, "part is 3, not in 0..2"), (0, 0, "num_parts is 0")],
)
def test_rows_part_refuses(library: str, part: int, num_parts: int, message: str) -> None:
    with pytest.raises(Exception, match=message):
        run_op(library, "RowsPart", {"x": floats(6, 5)}, {"part": part, "num_parts": num_parts})


@pytest.mark.parametrize("norm", ["none", "rms", "layer"])
@pytest.mark.parametrize("activation", ["none", "silu", "gelu"])
@pytest.mark.parametrize("given", ["", "weight", "weight bias", "bias residual", "weight bias residual"])
def test_norm_activation(library: str, norm: str, activation: str, given: str) -> None:
    for columns in (1, 15, 64, 100, 2048):
        x = floats(5, columns) * np.float32(3) + np.float32(0.5)
        values = {"weight": floats(columns), "bias": floats(columns), "residual": floats(5, columns)}
        inputs = {"x": x, **{name: value if name in given else None for name, value in values.items()}}
        found = run_op(library, "NormActivation", inputs, norm_attributes(norm, activation))
        expected = reference.norm_activation(**inputs, norm=norm, activation=activation, epsilon=1e-5)
        np.testing.assert_allclose(found, expected, rtol=0, atol=RTOL * max(1.0, np.abs(expected).max()))


def test_norm_activation_of_heads(library: str) -> None:
    x, weight = floats(3, 4, 16), floats(16)
    found = run_op(library, "NormActivation", {"x": x, "weight": weight}, norm_attributes())
    assert found.shape == x.shape
    np.testing.assert_allclose(found, reference.norm_activation(x, weight, norm="rms", epsilon=1e-5), atol=1e-5)


def test_rows_do_not_depend_on_each_other(library: str) -> None:
    x, weight = floats(33, 100), floats(100)
    run = OpRunner(library, "NormActivation", {"x": x, "weight": weight}, norm_attributes("layer", "gelu"), threads=2)
    together = run({"x": x, "weight": weight})
    for row in range(33):
        np.testing.assert_array_equal(run({"x": x[row : row + 1].copy(), "weight": weight})[0], together[row])


def test_zero_rows_and_tiny_ones(library: str) -> None:
    x = np.zeros((2, 32), np.float32)
    x[1] = 1e-30
    assert np.isfinite(run_op(library, "NormActivation", {"x": x}, norm_attributes("layer"))).all()
    assert run_op(library, "NormActivation", {"x": x[:0]}, norm_attributes()).shape == (0, 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "batch"}, "norm is 'batch', not one of none, rms, layer"),
        ({"activation": "relu"}, "activation is 'relu', not one of none, silu, gelu"),
        ({"norm_epsilon": -1.0}, "norm_epsilon is -1"),
    ],
)
def test_norm_activation_refuses_attributes(library: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        run_op(library, "NormActivation", {"x": floats(2, 4)}, norm_attributes() | change)


@pytest.mark.parametrize(("name", "shape"), [("weight", (5,)), ("bias", (2, 4)), ("residual", (1, 4))])
def test_norm_activation_refuses_shapes(library: str, name: str, shape: tuple[int, ...]) -> None:
    inputs = {"x": floats(2, 4), "weight": None, "bias": None, "residual": None, name: floats(*shape)}
    with pytest.raises(Exception, match=f"{name} has shape"):
        run_op(library, "NormActivation", inputs, norm_attributes())


@pytest.mark.parametrize("name", ["norm", "activation", "norm_epsilon"])
def test_attributes_are_required(library: str, name: str) -> None:
    attributes = norm_attributes()
    del attributes[name]
    with pytest.raises(Exception, match=name):
        run_op(library, "NormActivation", {"x": floats(2, 4)}, attributes)
