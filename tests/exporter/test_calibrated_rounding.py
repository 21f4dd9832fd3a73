"""Calibrated rounding against its definition, against all ways to round, and where inputs are odd."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from reference.calibrated_rounding import round_one_by_one, shrunken

from pilotfish.exporter.calibration import inputs as module
from pilotfish.exporter.calibration.grid import fit
from pilotfish.exporter.calibration.inputs import Inputs
from pilotfish.exporter.calibration.rounding import round_rows
from pilotfish.exporter.quantise import quantise

Array = np.ndarray[Any, np.dtype[Any]]
BOTH_FORMATS = pytest.mark.parametrize("format_name", ["int4", "int4_asym"])


def matrix(rows: int, columns: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def correlated(tokens: int, columns: int, seed: int) -> torch.Tensor:
    """Inputs as they are inside of models: a few directions have most of the energy, and channels differ in size."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((columns // 4, columns)) * np.exp(rng.standard_normal(columns))
    inputs = rng.standard_normal((tokens, columns // 4)) @ directions + 0.1 * rng.standard_normal((tokens, columns))
    return torch.from_numpy(inputs.astype(np.float32))


def exact(inputs: torch.Tensor, num_read: int) -> Inputs:
    """Inputs that nothing before has changed."""
    return Inputs(inputs, inputs, num_read)


def output_error(rows: Array, rounded: Array, inputs: torch.Tensor) -> float:
    """Over the inputs, by multiplying them."""
    change = inputs.numpy().astype(np.float64) @ (rows - rounded).T.astype(np.float64)
    return float(np.square(change).mean(0).sum())


@BOTH_FORMATS
@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (24, 96), (7, 160), (33, 256)])
def test_outputs_are_nearer_than_with_nearest_rounding(rows: int, columns: int, format_name: str) -> None:
    """Also on inputs that neither rounding nor the choice has seen."""
    for seed in range(3):
        weights, inputs = matrix(rows, columns, seed), correlated(8 * columns, columns, seed)
        found = round_rows(weights, exact(inputs[: 6 * columns], 5 * columns), format_name)
        mine, nearest = (
            output_error(weights, each.dequantise(), inputs[6 * columns :]) for each in (found.quantised, found.nearest)
        )
        assert found.is_calibrated
        assert mine < 0.7 * nearest
        assert np.array_equal(found.nearest.codes, quantise(weights, format_name).codes)


@BOTH_FORMATS
def test_columns_are_rounded_as_the_definition_has_it(format_name: str) -> None:
    weights, inputs = matrix(12, 160, 5), correlated(700, 160, 5)
    found = exact(inputs, 600)
    assert found.factor is not None
    order = found.factor.order.numpy()
    expected = round_one_by_one(weights, shrunken(inputs[:600].numpy()), order, format_name)
    rounded = round_rows(weights, found, format_name).quantised.dequantise()
    # A weight that lies half way between two values may go either way in f32, and later ones follow it.
    assert (np.abs(rounded - expected) < 1e-6).mean() > 0.95
    error, of_definition = (output_error(weights, each, inputs) for each in (rounded, expected))
    assert error == pytest.approx(of_definition, rel=0.03)


def test_all_ways_to_round_a_few_columns() -> None:
    """With four live columns, whose scale is known, all 16^4 rows of codes can be tried."""
    live = [1, 9, 17, 30]
    inputs = torch.zeros(600, 32)
    inputs[:, live] = correlated(600, 16, 2)[:, :4]
    for seed in range(5):
        weights = matrix(1, 32, seed)
        found = round_rows(weights, exact(inputs, 500), "int4").quantised
        every = np.array(list(itertools.product(range(-8, 8), repeat=4)), np.float32) * np.float32(found.scale[0, 0])
        change = (weights[:, live] - every) @ inputs[:, live].numpy().T
        best = np.square(change).mean(1).min()
        mine = output_error(weights, found.dequantise(), inputs)
        nearest = output_error(weights, quantise(weights, "int4").dequantise(), inputs)
        assert best <= mine * (1 + 1e-4)
        assert mine - best <= 0.7 * (nearest - best) + 1e-9


@BOTH_FORMATS
def test_dead_channels_keep_their_weights(format_name: str) -> None:
    """What a text never uses, another may: it is rounded, not dropped."""
    weights, inputs = matrix(20, 128, 8), correlated(600, 128, 8)
    dead = [0, 5, *range(64, 96), 127]
    inputs[:, dead] = 0
    found = round_rows(weights, exact(inputs, 500), format_name)
    rounded = found.quantised.dequantise()
    assert found.is_calibrated
    assert np.isfinite(rounded).all()
    step = np.repeat(np.abs(found.quantised.scale.astype(np.float32)), 32, axis=1)
    inside = np.abs(weights - rounded)[:, dead] <= 1.01 * step[:, dead]  # beyond the grid's end no value is nearer
    assert inside.mean() > 0.95


@BOTH_FORMATS
@pytest.mark.parametrize("num_read", [1, 3, 20, 100])
def test_few_inputs_make_nothing_worse(format_name: str, num_read: int) -> None:
    """On other inputs than those that are there."""
    for seed in range(3):
        weights, inputs = matrix(32, 192, seed), correlated(2000, 192, seed)
        found = round_rows(weights, exact(inputs[: num_read + 128], num_read), format_name)
        mine, nearest = (
            output_error(weights, each.dequantise(), inputs[1000:]) for each in (found.quantised, found.nearest)
        )
        assert mine < 1.02 * nearest


@BOTH_FORMATS
def test_what_does_not_hold_elsewhere_is_not_taken(format_name: str) -> None:
    """Inputs that were read have nothing to do with the others: the matrix keeps nearest rounding."""
    weights, inputs = matrix(16, 64, 1), torch.cat([1e3 * correlated(50, 64, 1), correlated(400, 64, 9)])
    inputs[:50, 32:] = 0
    inputs[50:, :32] = 0
    found = round_rows(weights, exact(inputs, 50), format_name)
    assert found.is_calibrated == (
        output_error(weights, found.quantised.dequantise(), inputs[50:])
        < output_error(weights, found.nearest.dequantise(), inputs[50:])
    )


@BOTH_FORMATS
def test_without_any_input_rounding_is_the_nearest(format_name: str) -> None:
    weights = matrix(16, 64, 1)
    found = round_rows(weights, exact(torch.zeros(20, 64), 10), format_name)
    assert not found.is_calibrated
    assert np.array_equal(found.quantised.codes, quantise(weights, format_name).codes)


@BOTH_FORMATS
def test_the_numbers_are_those_that_the_format_holds(format_name: str) -> None:
    weights = matrix(40, 96, 2)
    weights[:, 32:64] *= 1e-3
    weights[3] = 0
    found = round_rows(weights, exact(correlated(400, 96, 2), 300), format_name).quantised
    least, most = (-8, 7) if format_name == "int4" else (0, 15)
    assert found.codes.dtype == np.int8
    assert (found.codes.min(), found.codes.max()) == (least, most)
    assert (found.scale.dtype, found.scale.shape) == (np.float16, (40, 3))
    assert (found.offset is None) == (format_name == "int4")
    assert not found.dequantise()[3].any()
    assert np.abs(found.dequantise()[:, 32:64]).max() < 0.1  # they take over errors of the larger ones


def test_rows_in_parts_are_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, inputs = matrix(50, 64, 6), exact(correlated(300, 64, 6), 200)
    whole = round_rows(weights, inputs, "int4")
    monkeypatch.setattr("pilotfish.exporter.calibration.rounding._ROWS", 7)
    num_threads = torch.get_num_threads()
    parts = round_rows(weights, inputs, "int4")
    assert (whole.quantised.codes == parts.quantised.codes).mean() > 0.99
    assert torch.get_num_threads() == num_threads


@pytest.mark.parametrize("panel", [32, 50, 64, 1024])
def test_a_hessian_is_the_mean_of_products(panel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PANEL", panel)
    inputs = correlated(100, 128, 4)
    expected = inputs[:80].double().T @ inputs[:80].double() / 80
    assert torch.allclose(exact(inputs, 80).hessian.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("leaf", [1, 7, 32, 256])
def test_the_factor_is_that_of_the_inverse(leaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAF", leaf)
    inputs = correlated(1000, 96, 7)
    factor = exact(inputs, 900).factor
    assert factor is not None
    order, upper = factor.order.numpy(), factor.upper.numpy().astype(np.float64)
    assert np.array_equal(np.sort(order), np.arange(96))
    assert all(len({int(column) // 32 for column in order[start : start + 32]}) == 1 for start in (0, 32, 64))
    energy = np.square(inputs[:900].numpy()).mean(0)[order]
    assert (np.diff([energy[start : start + 32].sum() for start in (0, 32, 64)]) <= 0).all()
    assert np.array_equal(upper, np.triu(upper))
    in_order = shrunken(inputs[:900].numpy())[np.ix_(order, order)]
    assert np.allclose(upper.T @ upper @ in_order, np.eye(96), atol=1e-3)
    wanted = torch.from_numpy(matrix(3, 96, 1))
    assert np.allclose(factor.solve(wanted), wanted.numpy() @ np.linalg.inv(shrunken(inputs[:900].numpy())), atol=1e-3)


@BOTH_FORMATS
def test_a_grid_is_as_good_as_that_of_nearest_rounding(format_name: str) -> None:
    """Where all columns count alike; and where one counts alone, it is nearly exact."""
    weights = matrix(200, 32, 9)
    columns = torch.from_numpy(weights.T.copy())
    grid = fit(columns, torch.ones(32), format_name)
    mine = float((columns - grid.values(grid.codes(columns))).square().sum())
    nearest = np.square(weights - quantise(weights, format_name).dequantise()).sum()
    assert mine <= 1.03 * nearest
    importance = torch.full((32,), 1e-6)
    importance[4] = 1
    alone = fit(columns, importance, format_name)
    assert float((columns[4] - alone.values(alone.codes(columns[4]))).square().mean()) < 0.2 * mine / columns.numel()


def test_a_matrix_makes_up_for_the_ones_before_it() -> None:
    """Its inputs have drifted; the rounded matrix gives more nearly what the exact inputs give."""
    for seed in range(3):
        weights, before = matrix(40, 64, seed), correlated(2000, 64, seed)
        rng = np.random.default_rng(seed)
        drifted = before @ torch.from_numpy((np.eye(64) + 0.03 * rng.standard_normal((64, 64))).astype(np.float32))
        wanted = before.numpy() @ weights.T
        aware, unaware = (
            round_rows(weights, inputs, "int4").quantised.dequantise()
            for inputs in (Inputs(drifted, before, 1500), exact(drifted, 1500))
        )
        errors = [np.square(drifted.numpy() @ found.T - wanted)[1500:].mean() for found in (aware, unaware)]
        assert errors[0] < 0.7 * errors[1]


@pytest.mark.parametrize("num_rows", [20, 200])
@pytest.mark.parametrize("panel", [32, 1024])
def test_the_aim_does_not_depend_on_the_order_of_its_products(
    num_rows: int, panel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows are multiplied with the inputs, many with their product: both as the definition has it."""
    monkeypatch.setattr(module, "_PANEL", panel)
    weights, before = torch.from_numpy(matrix(num_rows, 96, 5)), correlated(2000, 96, 5)
    change = np.eye(96) + 0.03 * np.random.default_rng(5).standard_normal((96, 96))
    drifted = before @ torch.from_numpy(change.astype(np.float32))
    moved = (Inputs(drifted, before, 1500).aim(weights) - weights).double().numpy()
    own, exact_inputs = drifted[:1500].double().numpy(), before[:1500].double().numpy()
    drift = weights.double().numpy() @ (exact_inputs - own).T @ own / 1500
    wanted = drift @ np.linalg.inv(shrunken(drifted[:1500].numpy()))
    share = float((moved * wanted).sum() / np.square(wanted).sum())  # as far as other rows bear it out
    assert 0.5 < share <= 1.001
    assert np.allclose(moved, share * wanted, atol=1e-3 * np.abs(wanted).max())


def test_rows_that_judge_are_few_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbouring tokens tell much the same: a part of them gives nearly the error of all."""
    weights, inputs = matrix(24, 64, 6), correlated(3000, 64, 6)
    rounded = torch.from_numpy(quantise(weights, "int4").dequantise())
    errors = []
    for most in (512, 1 << 20):
        monkeypatch.setattr(module, "_MOST_HELD_ROWS", most)
        errors.append(exact(inputs, 1000).held_error(torch.from_numpy(weights), rounded))
    assert errors[0] != errors[1]
    assert abs(errors[0] / errors[1] - 1) < 0.2


def test_inputs_that_have_not_drifted_change_nothing() -> None:
    weights, inputs = torch.from_numpy(matrix(8, 64, 2)), correlated(300, 64, 2)
    assert torch.equal(exact(inputs, 200).aim(weights), weights)


def test_what_looks_like_drift_in_a_few_tokens_is_not_believed() -> None:
    """Differences that have nothing to do with the inputs."""
    weights, inputs = torch.from_numpy(matrix(30, 64, 4)), correlated(160, 64, 4)
    noise = 0.3 * torch.randn(inputs.shape, generator=torch.Generator().manual_seed(1))
    moved = (Inputs(inputs, inputs + noise, 120).aim(weights) - weights).square().mean()
    fitted = torch.linalg.lstsq(inputs, noise @ weights.T).solution.T  # what would fit the tokens best
    assert float(moved) < 0.1 * float(fitted.square().mean())
