from __future__ import annotations

import numpy as np
import pytest
from reference.linear import FORMATS, Weight, embedding
from reference.run_op import run_op

IDS = np.array([0, 36, 17, 17, 5], np.int32)


def make(fmt: str, columns: int) -> tuple[Weight, dict[str, np.ndarray], dict[str, int | float | str]]:
    values = np.random.default_rng(0).standard_normal((37, columns)).astype(np.float32)
    weight = Weight(values, fmt)
    attributes = {"format": fmt, "num_rows": 37, "num_columns": columns}
    return weight, {"input_ids": IDS, "weight": weight.packed()}, attributes


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("columns", [1, 64, 100, 576])
@pytest.mark.parametrize("scale", [1.0, 24.0, 0.3])
def test_matches_reference(library: str, fmt: str, columns: int, scale: float) -> None:
    weight, inputs, attributes = make(fmt, columns)
    out = run_op(library, "Embedding", inputs, attributes | {"scale": scale})
    np.testing.assert_array_equal(out, embedding(IDS, weight, scale))


def test_scale_is_one_if_absent(library: str) -> None:
    weight, inputs, attributes = make("int8", 64)
    np.testing.assert_array_equal(run_op(library, "Embedding", inputs, attributes), embedding(IDS, weight, 1.0))


@pytest.mark.parametrize("value", [37, -1])
def test_refuses_ids(library: str, value: int) -> None:
    _, inputs, attributes = make("int8", 64)
    with pytest.raises(Exception, match=rf"input_ids\[1\] is {value}, not in 0..36"):
        run_op(library, "Embedding", inputs | {"input_ids": np.array([3, value], np.int32)}, attributes)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format": "q4"}, "format is 'q4'"), ({"num_rows": 49}, "weight has shape"), ({"scale": 2}, "attribute scale: ")],
)
def test_refuses_attributes(library: str, change: dict[str, int | float | str], message: str) -> None:
    _, inputs, attributes = make("int8", 64)
    with pytest.raises(Exception, match=message):
        run_op(library, "Embedding", inputs, attributes | change)
