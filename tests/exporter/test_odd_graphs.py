"""Graphs of operators that may be in a decoder, with odd attributes: lowered they are right, or refused in words."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from odd_graphs import INT_MIN, Graph, grow, run_lowered, run_whole
from onnx import TensorProto

from pilotfish.exporter import ExportError
from pilotfish.exporter.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_GRAPHS = 400
MOST_NODES = 4


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[str]]:
    """Operators of the graphs that are right, and reasons of those that are refused."""
    found: dict[str, list[str]] = {"right": [], "refused": []}
    for seed in range(NUM_GRAPHS):
        rng, graph = random.Random(seed), Graph()
        for _ in range(rng.randint(1, MOST_NODES)):
            grow(graph, rng)
        expected = run_whole(graph)
        try:
            lowered = run_lowered(graph)
        except ExportError as error:
            found["refused"].append(str(error))
        else:
            assert lowered.size == expected.size, (seed, graph.nodes)
            np.testing.assert_allclose(
                lowered.reshape(-1), expected.reshape(-1), rtol=1e-5, atol=1e-5, err_msg=f"{seed}: {graph.nodes}"
            )
            found["right"] += [node.op_type for node in graph.nodes]
    return found


def test_odd_graphs_are_right_or_refused(outcomes: dict[str, list[str]]) -> None:
    """Both happen often, so that neither is all that is tested."""
    assert {"Slice", "Split", "Transpose", "Gather", "Concat", "Where", "Clip", "Reshape", "Expand"} <= set(
        outcomes["right"]
    )
    assert any("reverse order" in reason for reason in outcomes["refused"])
    assert len(outcomes["refused"]) < 0.8 * NUM_GRAPHS


def refusal(build: Callable[[Graph], str]) -> str:
    graph = Graph()
    graph.last = build(graph)
    with pytest.raises(UnsupportedModelError) as error:
        run_lowered(graph)
    return str(error.value)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda graph: graph.node("Slice", "x0", *(graph.number([item]) for item in (-1, INT_MIN, 2, -1))),
            "reverse order",
        ),
        (
            lambda graph: graph.node("Gather", "x0", graph.node("Cast", "layer.columns", to=TensorProto.INT64), axis=2),
            "as a constant",
        ),
        (lambda graph: graph.node("Clip", "x0", "layer.bound"), "bounds that are computed"),
        (
            lambda graph: graph.node("Add", graph.node("LayerNormalization", "x0", "layer.vector", outputs=2), "x1.1"),
            "2 results of LayerNorm",
        ),
        (lambda graph: graph.node("Cast", graph.node("Cast", "x0", to=3), to=1), "a cast to the type of number 3"),
        (
            lambda graph: graph.node("Slice", "x0", graph.number([0]), graph.number([0]), graph.number([2])),
            "nothing of a row",
        ),
    ],
)
def test_what_no_rule_expects_is_refused_by_name(build: Callable[[Graph], str], reason: str) -> None:
    assert reason in refusal(build)
