from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.row_steps import ARITY, FUNCTIONS, KINDS, constant, random_program, run, step
from reference.run_op import OpRunner

from pilotfish.exporter import contract

Array = np.ndarray[Any, np.dtype[np.float32]]
TOLERANCE = {"exp": 3e-7, "erf": 3e-7, "gelu": 4e-7}  # relative to 1 + |exact|; of others 2e-7


def outputs_of(library: str, attributes: dict[str, Any], inputs: list[Array], threads: int = 1) -> list[Array]:
    named = {f"x{index}": value for index, value in enumerate(inputs)}
    runner = OpRunner(library, "RowSteps", named, attributes, threads=threads, num_outputs=len(attributes["outputs"]))
    return runner.all(named)


def program(steps: list[list[int]], widths: list[int], *, row_inputs: int = 1) -> dict[str, Any]:
    flat = [item for integers in steps for item in integers]
    return {"row_inputs": row_inputs, "widths": widths, "steps": flat, "outputs": [len(steps) - 1]}


def test_the_contract_has_these_kinds() -> None:
    assert contract.ROW_STEP_KINDS == KINDS


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("width", [1, 16, 37])
def test_functions(library: str, kind: str, width: int) -> None:
    """Each function over the numbers that it is for, small ones and large ones among them."""
    rng = np.random.default_rng(3)
    inputs = [
        (rng.uniform(-9, 9, (40, width)) * 10.0 ** rng.integers(-4, 1, (40, 1))).astype(np.float32) for _ in range(3)
    ]
    if kind in ("log", "sqrt"):
        inputs[0] = np.abs(inputs[0]) + np.float32(1e-6)
    if kind == "div":
        inputs[1] += np.copysign(np.float32(0.1), inputs[1])
    operands = [[place + 2, 0, 0, 0, 1] for place in range(ARITY[kind])]
    attributes = program([step(kind, (1, 1, width), *operands)], [width] * 3, row_inputs=3)
    (found,), (expected,) = outputs_of(library, attributes, inputs), run(attributes, inputs)
    error = np.abs(found - expected) / (1 + np.abs(expected))
    assert error.max() <= TOLERANCE.get(kind, 2e-7)


def test_functions_of_small_numbers_are_near_relatively(library: str) -> None:
    x = (10.0 ** np.random.default_rng(0).uniform(-6, 0, (1, 500))).astype(np.float32)
    for kind in ("tanh", "erf"):
        attributes = program([step(kind, (1, 1, 500), [2, 0, 0, 0, 1])], [500])
        (found,), (expected,) = outputs_of(library, attributes, [x]), run(attributes, [x])
        np.testing.assert_allclose(found, expected, rtol=4e-7)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_match_the_oracle(library: str, seed: int) -> None:
    attributes, inputs = random_program(seed)
    found, expected = outputs_of(library, attributes, inputs), run(attributes, inputs)
    assert len(found) == len(expected) == len(attributes["outputs"])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5, rtol=3e-5)


@pytest.mark.parametrize("seed", range(6))
def test_a_row_has_the_same_bits_in_any_number_of_rows(library: str, seed: int) -> None:
    attributes, inputs = random_program(100 + seed)
    rows = attributes["row_inputs"]
    rng = np.random.default_rng(seed)
    many = [rng.standard_normal((64, value.shape[1])).astype(np.float32) for value in inputs[:rows]]
    together = outputs_of(library, attributes, [*many, *inputs[rows:]], threads=3)
    for size in (1, 2, 3, 8, 17):
        for start in (0, 20, 64 - size):
            part = [value[start : start + size].copy() for value in many]
            for one, other in zip(outputs_of(library, attributes, [*part, *inputs[rows:]]), together, strict=True):
                np.testing.assert_array_equal(one.view(np.int32), other[start : start + size].view(np.int32))


@pytest.mark.parametrize("width", [2047, 2048, 5000])
def test_wide_rows_in_chunks(library: str, width: int) -> None:
    """Gate and up side by side: every step goes column by column, and chunks of a row are tasks of their own."""
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((3, 2 * width)).astype(np.float32), rng.standard_normal(width).astype(np.float32)]
    steps = [
        step("gelu_tanh", (1, 1, width), [2, 0, 0, 0, 1]),
        step("mul", (1, 1, width), [4, 0, 0, 0, 1], [2, width, 0, 0, 1]),
        step("fma", (1, 1, width), [5, 0, 0, 0, 1], constant(0.5), [3, 0, 0, 0, 1]),
    ]
    attributes = program(steps, [2 * width, width])
    (found,) = outputs_of(library, attributes, inputs, threads=2)
    np.testing.assert_allclose(found, run(attributes, inputs)[0], atol=1e-6, rtol=1e-6)


GOOD = program([step("add", (2, 3, 4), [2, 0, 12, 4, 1], [3, 0, 0, 4, 1])], [24, 12])
WRONG = [
    (
        {"steps": step("add", (2, 3, 4), [2, 1, 12, 4, 1], [3, 0, 0, 4, 1])},
        "step 0: it reads element 24 of a value of 24",
    ),
    (
        {"steps": step("add", (2, 3, 4), [2, 0, 12, 4, 1], [3, 0, 1, 4, 1])},
        "step 0: it reads element 12 of a value of 12",
    ),
    ({"steps": step("add", (2, 3, 4), [2, 0, 12, 4, 1])}, "step 0: it has too few operands"),
    ({"steps": step("abs", (2, 3, 4), [2, 0, 12, 4, 1], [3, 0, 0, 4, 1])}, "step 0: it has too many operands"),
    ({"steps": step("abs", (2, 3, 4), [4, 0, 12, 4, 1])}, r"step 0: a source is 4, not in 0\.\.3"),
    ({"steps": step("abs", (2, 3, 4), [-1, 0, 12, 4, 1])}, "a source is -1"),
    ({"steps": step("abs", (2, 3, 4), [2, -1, 12, 4, 1])}, "an offset is -1"),
    ({"steps": step("abs", (2, 3, 4), [2, 0, 12, 4, -1])}, "a stride is -1"),
    ({"steps": step("abs", (2, 3, 4), [1, -1, 0, 0, 0])}, "a number has the bits -1"),
    ({"steps": step("abs", (2, 3, 4), [1, 0, 0, 0, 1])}, r"a stride is 1, not in 0\.\.0"),
    ({"steps": step("abs", (0, 3, 4), [2, 0, 12, 4, 1])}, "a size is 0"),
    ({"steps": step("abs", (2**12, 2**12, 2), [1, 0, 0, 0, 0])}, "more than 16777216 elements"),
    ({"steps": step("abs", (2**62, 2**62, 2**62), [1, 0, 0, 0, 0])}, "a size is "),
    ({"steps": step("abs", (1, 1, 1), [2, 2**62, 0, 0, 0])}, "an offset is "),
    ({"steps": step("join", (1, 1, 4), [2, 0, 0, 0, 1], [3, 0, 0, 0, 1], num_first=4)}, "a join's first part is 4"),
    ({"steps": step("join", (1, 1, 1), [2, 0, 0, 0, 1], [3, 0, 0, 0, 1], num_first=0)}, "a join's first part is 0"),
    ({"steps": [len(KINDS), *GOOD["steps"][1:]]}, f"its kind is {len(KINDS)}, not in"),
    ({"steps": GOOD["steps"][:-1]}, "18 integers for its steps, not 19"),
    ({"steps": GOOD["steps"] * 257}, r"not 19 for each of 1\.\.256"),
    ({"outputs": [1]}, r"an output is 1, not in 0\.\.0"),
    ({"outputs": [0, 0]}, "two outputs are step 0"),
    ({"widths": [24, 0]}, "a width is 0"),
    ({"widths": [24]}, "reads element|the node has 2 inputs|a source is 3"),
    ({"row_inputs": 3}, r"row_inputs is 3, not in 1\.\.2"),
    ({"row_inputs": 2}, "input 1 has shape"),
    ({"widths": [25, 12]}, "input 0 has shape"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_refuses_programs(library: str, change: dict[str, Any], message: str) -> None:
    inputs = [np.ones((2, 24), np.float32), np.ones(12, np.float32)]
    assert outputs_of(library, GOOD, inputs)[0].shape == (2, 24)
    with pytest.raises(Exception, match=message):
        outputs_of(library, GOOD | change, inputs)
