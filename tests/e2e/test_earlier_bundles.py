"""Exports have no node that ONNX Runtime computes where all of a model is fused; bundles that have such still load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from earlier_nodes import operators_of, with_earlier_nodes
from prepared_bundles import HEADS

from pilotfish import Engine

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = [11, 7, 200, 31, 8, 11, 7]
OPTIONS: dict[str, Any] = {"max_new_tokens": 10, "ignore_eos": True}


def plain_events(engine: Engine) -> list[tuple[int, float | None]]:
    events = engine.stream(PROMPT, source="plain", logprobs=1, **OPTIONS)
    return [(event.token_id, event.logprob) for event in events]


@pytest.mark.parametrize("kind", HEADS)
def test_heads(head_bundles: Path, kind: str, tmp_path: Path) -> None:
    bundle = head_bundles / kind
    assert operators_of(bundle) == set()
    earlier_bundle = with_earlier_nodes(bundle, tmp_path / "earlier")
    assert {"Gather", "SimplifiedLayerNormalization"} & operators_of(earlier_bundle)
    found = []
    for each in (bundle, earlier_bundle):
        with Engine(each, threads=1, calibration="off") as engine:
            plain = plain_events(engine)
            drafted = engine.generate(PROMPT, source="head", num_draft_tokens=3, **OPTIONS)
            assert drafted.stats.num_head_drafted > 0
            assert list(drafted.token_ids) == [token_id for token_id, _ in plain]
            found.append(plain)
    assert found[0] == found[1]


def test_a_pair(tiny_bundle: Path, tmp_path: Path) -> None:
    assert operators_of(tiny_bundle) == set()
    earlier_bundle = with_earlier_nodes(tiny_bundle, tmp_path / "earlier")
    assert operators_of(earlier_bundle) == {"Gather"}
    with Engine(tiny_bundle, threads=1, calibration="off") as engine:
        expected = plain_events(engine)
    with Engine(earlier_bundle, threads=1, calibration="off") as engine:
        assert plain_events(engine) == expected
