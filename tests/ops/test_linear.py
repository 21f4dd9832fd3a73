from __future__ import annotations

import numpy as np
import pytest
from reference.linear import FORMATS, INT_FORMATS, Weight, linear, swiglu_rows
from reference.run_op import OpRunner, run_op

RTOL = 2e-5  # of the largest output: float32 accumulation against double


def attributes(weight: Weight, *, swiglu: bool = False, epsilon: float = 1e-5) -> dict[str, int | float | str]:
    return {
        "format": weight.format,
        "in_features": weight.columns,
        "out_features": weight.rows,
        "activation": "swiglu" if swiglu else "none",
        "norm_epsilon": epsilon,
    }


def check(
    library: str,
    weight: Weight,
    rows: int,
    *,
    swiglu: bool = False,
    bias: bool = False,
    norm: bool = False,
    residual: bool = False,
) -> None:
    rng = np.random.default_rng(rows)
    outputs = weight.rows // 2 if swiglu else weight.rows
    inputs = {
        "x": rng.standard_normal((rows, weight.columns)).astype(np.float32),
        "weight": weight.packed(),
        "bias": rng.standard_normal(weight.rows).astype(np.float32) if bias else None,
        "norm_weight": rng.uniform(0.5, 1.5, weight.columns).astype(np.float32) if norm else None,
        "residual": rng.standard_normal((rows, outputs)).astype(np.float32) if residual else None,
    }
    y = run_op(library, "Linear", inputs, attributes(weight, swiglu=swiglu))
    expected = linear(
        inputs["x"],
        weight,
        bias=inputs["bias"],
        norm_weight=inputs["norm_weight"],
        residual=inputs["residual"],
        swiglu=swiglu,
    )
    assert y.shape == (rows, outputs)
    # A product next to a rounding border may be quantised to the neighbour in float32: one step of one activation.
    slack = 0.02 if norm and weight.format in INT_FORMATS else RTOL
    np.testing.assert_allclose(y, expected, rtol=0, atol=slack * np.abs(expected).max())


def make_weight(rows: int, columns: int, fmt: str, seed: int = 0) -> Weight:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    return Weight(values + (0.3 if fmt == "int4_asym" else 0), fmt)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("outputs", "columns"), [(16, 64), (48, 96), (37, 100), (1, 1), (130, 576)])
@pytest.mark.parametrize("rows", [1, 3, 16, 19])
def test_matches_reference(library: str, fmt: str, outputs: int, columns: int, rows: int) -> None:
    check(library, make_weight(outputs, columns, fmt), rows)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("swiglu", [False, True])
def test_fused_parts(library: str, fmt: str, *, bias: bool, norm: bool, residual: bool, swiglu: bool) -> None:
    check(library, make_weight(96, 200, fmt), 5, bias=bias, norm=norm, residual=residual, swiglu=swiglu)


def test_swiglu_interleaves_gate_and_up(library: str) -> None:
    rng = np.random.default_rng(3)
    gate, up = rng.standard_normal((2, 32, 64)).astype(np.float32)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    weight = Weight(np.concatenate([gate, up])[swiglu_rows(64)], "f32")
    y = run_op(library, "Linear", {"x": x, "weight": weight.packed()}, attributes(weight, swiglu=True))
    g = (x @ gate.T).astype(np.float64)
    np.testing.assert_allclose(y, g / (1 + np.exp(-g)) * (x @ up.T), rtol=1e-4, atol=1e-5)


def test_int_dot_products_are_exact(library: str) -> None:
    """Weights and activations that quantise without loss give the integer product."""
    rng = np.random.default_rng(1)
    for fmt, most in (("int4", 7), ("int8", 127)):
        values = rng.integers(-most, most + 1, (32, 128))
        values[:, ::32] = most  # scale 1
        x = rng.integers(-127, 128, (4, 128))
        x[:, ::32] = 127
        weight = Weight(values.astype(np.float32), fmt)
        y = run_op(library, "Linear", {"x": x.astype(np.float32), "weight": weight.packed()}, attributes(weight))
        np.testing.assert_array_equal(y, x @ values.T)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("swiglu", [False, True])
def test_rows_do_not_depend_on_each_other(library: str, fmt: str, *, swiglu: bool) -> None:
    weight = make_weight(160, 224, fmt)
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((64, 224)) * rng.uniform(0.01, 10, (64, 1))).astype(np.float32)
    norm_weight = rng.uniform(0.5, 1.5, 224).astype(np.float32)
    inputs = {"x": x, "weight": weight.packed(), "bias": None, "norm_weight": norm_weight}
    run = OpRunner(library, "Linear", inputs, attributes(weight, swiglu=swiglu), threads=2)
    alone = np.concatenate([run(inputs | {"x": x[row : row + 1]}) for row in range(64)])
    for rows in [*range(1, 18), 32, 64]:
        np.testing.assert_array_equal(run(inputs | {"x": x[:rows].copy()}), alone[:rows], err_msg=f"{rows} rows")


@pytest.mark.parametrize("fmt", FORMATS)
def test_threads_do_not_change_bits(library: str, fmt: str) -> None:
    weight = make_weight(512, 192, fmt)
    inputs = {"x": np.random.default_rng(0).standard_normal((40, 192)).astype(np.float32), "weight": weight.packed()}
    one, two, four = (run_op(library, "Linear", inputs, attributes(weight), threads=t) for t in (1, 2, 4))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, four)


@pytest.mark.parametrize("fmt", FORMATS)
def test_zero_and_tiny_rows(library: str, fmt: str) -> None:
    weight = make_weight(16, 64, fmt)
    x = np.zeros((3, 64), np.float32)
    x[1], x[2, 0] = 1e-42, 1e-30
    y = run_op(library, "Linear", {"x": x, "weight": weight.packed()}, attributes(weight))
    np.testing.assert_array_equal(y[0], np.zeros(16))
    assert np.abs(y[1:]).max() < 1e-28


@pytest.mark.parametrize("fmt", INT_FORMATS)
@pytest.mark.parametrize("threads", [1, 2])
def test_uneven_rows_are_refined(library: str, fmt: str, threads: int) -> None:
    """A spike in a row takes nothing from its other columns, and rows beside it stay what they are alone."""
    columns, uneven = 1216, [0, 4, 21]  # 38 blocks
    weight = make_weight(64, columns, fmt)
    x = 0.05 * np.random.default_rng(2).standard_normal((23, columns)).astype(np.float32)
    x[uneven, 700] = 15
    residual = np.random.default_rng(3).standard_normal((23, 32)).astype(np.float32)
    inputs = {"x": x, "weight": weight.packed(), "bias": None, "norm_weight": None, "residual": residual}
    run = OpRunner(library, "Linear", inputs, attributes(weight, swiglu=True), threads=threads)
    y = run(inputs)
    gate, up = np.split((x @ weight.values[:64, :columns].T.astype(np.float64))[:, np.argsort(swiglu_rows(64))], 2, 1)
    exact = gate / (1 + np.exp(-gate)) * up + residual
    error = np.abs(y - exact).max(axis=1) / np.abs(exact).max(axis=1)
    assert error[uneven].max() < 5e-4  # one rounding alone leaves 2e-2
    for row in range(23):
        alone = run(inputs | {"x": x[row : row + 1], "residual": residual[row : row + 1]})
        np.testing.assert_array_equal(y[row : row + 1], alone, err_msg=f"row {row}")
    expected = linear(x, weight, residual=residual, swiglu=True)
    np.testing.assert_array_less(np.abs(y - expected).max(axis=1), RTOL * np.abs(expected).max(axis=1))


def test_no_rows(library: str) -> None:
    weight = make_weight(16, 64, "int4")
    inputs = {"x": np.zeros((0, 64), np.float32), "weight": weight.packed()}
    assert run_op(library, "Linear", inputs, attributes(weight)).shape == (0, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "int3"}, "format is 'int3', not one of int4, int4_asym, int8, f16, f32"),
        ({"activation": "gelu"}, "activation is 'gelu', not one of none, swiglu"),
        ({"activation": "swiglu", "out_features": 48}, "out_features is 48, not a multiple of 32"),
        ({"in_features": 0}, "in_features is 0, not in 1.."),
        ({"norm_epsilon": -1.0}, "norm_epsilon is -1"),
        ({"in_features": 128}, r"x has shape \[1, 64\], not \[any, 128\]"),
        ({"out_features": 64}, r"weight has shape \[1152\], not \[2304\]"),
    ],
)
def test_refuses(library: str, change: dict[str, int | float | str], message: str) -> None:
    weight = make_weight(32, 64, "int4")
    inputs = {"x": np.zeros((1, 64), np.float32), "weight": weight.packed()}
    with pytest.raises(Exception, match=message):
        run_op(library, "Linear", inputs, attributes(weight) | change)


@pytest.mark.parametrize("name", ["format", "in_features", "out_features", "activation", "norm_epsilon"])
def test_attributes_are_required(library: str, name: str) -> None:
    weight = make_weight(32, 64, "int4")
    inputs = {"x": np.zeros((1, 64), np.float32), "weight": weight.packed()}
    given = attributes(weight)
    del given[name]
    with pytest.raises(Exception, match=name):
        run_op(library, "Linear", inputs, given)


@pytest.mark.parametrize(
    ("name", "shape"), [("bias", (31,)), ("norm_weight", (65,)), ("residual", (2, 32)), ("residual", (1, 16))]
)
def test_refuses_shapes(library: str, name: str, shape: tuple[int, ...]) -> None:
    weight = make_weight(32, 64, "int4")
    inputs = {
        "x": np.zeros((1, 64), np.float32),
        "weight": weight.packed(),
        "bias": None,
        "norm_weight": None,
        "residual": None,
        name: np.zeros(shape, np.float32),
    }
    with pytest.raises(Exception, match=f"{name} has shape"):
        run_op(library, "Linear", inputs, attributes(weight))
