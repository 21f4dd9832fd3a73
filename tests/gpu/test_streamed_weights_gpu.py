"""A target larger than the memory budget on a GPU: weights that stream from host memory change no bit of an answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish import Engine
from pilotfish.bindings import BudgetTooSmallError, Model, calls
from pilotfish.runtime.engine_options import memory_plan
from pilotfish.runtime.verify_sources import PLAIN, sources_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import CommandLine

    from pilotfish.bindings import EngineInfo

pytestmark = pytest.mark.gpu

LIMITS: dict[str, Any] = {"device": "cuda", "max_context": 512, "max_draft_tokens": 15, "prefill_chunk": 128}
# Of the target's weights, what a budget leaves out. More does not fit where two of the largest matrices are most of it.
LEFT_OUT = {"f16": 0.25, "1b": 0.5}


def whole_plan(bundle: Path) -> EngineInfo:
    return memory_plan(bundle, **LIMITS)


def budget_of(bundle: Path, share: float) -> int:
    """Bytes in which all but `share` of the target's weights have room."""
    whole = whole_plan(bundle)
    return whole.total_bytes - int(share * whole.target_weight_bytes)


def prompt(engine: Engine, length: int) -> list[int]:
    size = engine.manifest.tokenizer.size
    return [int(value) for value in np.random.default_rng(length).integers(2, size, length)]


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_answers_are_the_resident_engines(make_bundle: Callable[[str], Path], name: str) -> None:
    bundle = make_bundle(name)
    sampled: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "seed": 3, "num_draft_tokens": 3}

    def answers(engine: Engine) -> tuple[list[list[int]], list[np.ndarray[Any, Any]]]:
        texts, logits = [], []
        for length in (1, 33, 200):  # one row, two passes, more rows than a recorded pass has
            ids = prompt(engine, length)
            logits.append(engine.logits(ids, Model.TARGET))
            ways: list[dict[str, Any]] = [
                dict(PLAIN),
                sampled,
                *(dict(source.options) for source in sources_of(engine)),
            ]
            for options in ways:
                # The second time passes and rounds are recorded ones.
                for _ in range(2):
                    result = engine.generate(ids, max_new_tokens=24, ignore_eos=True, **options)
                    texts.append(list(result.token_ids))
        engine.check()
        return texts, logits

    with Engine(bundle, **LIMITS) as resident:
        assert resident.info.target_streamed_bytes == 0
        expected, expected_logits = answers(resident)
    with Engine(bundle, memory_budget=budget_of(bundle, LEFT_OUT[name]), **LIMITS) as streaming:
        assert streaming.info.target_streamed_bytes > 0
        found, logits = answers(streaming)
    assert found == expected
    for one, other in zip(logits, expected_logits, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_budget_is_kept(make_bundle: Callable[[str], Path]) -> None:
    bundle = make_bundle("1b")
    budget = budget_of(bundle, LEFT_OUT["1b"])
    before = calls.cuda_info(0, measure=False).free_bytes
    with Engine(bundle, memory_budget=budget, **LIMITS) as engine:
        for drafted in (0, 1, 4, 7, LIMITS["max_draft_tokens"]):
            for _ in range(2):
                engine.generate([5] * 300, max_new_tokens=60, num_draft_tokens=drafted, ignore_eos=True)
        used = before - calls.cuda_info(0, measure=False).free_bytes
        assert used <= engine.info.total_bytes <= budget
        assert engine.info.target_streamed_bytes > 0.4 * whole_plan(bundle).target_weight_bytes


def test_rounds_stay_on_the_device(make_bundle: Callable[[str], Path]) -> None:
    bundle = make_bundle("1b")
    with Engine(bundle, memory_budget=budget_of(bundle, LEFT_OUT["1b"]), **LIMITS) as engine:
        stats = engine.generate(prompt(engine, 40), max_new_tokens=40, num_draft_tokens=4, ignore_eos=True).stats
        assert stats.num_device_rounds == stats.num_rounds > 0


def test_costs_are_kept_apart(
    make_bundle: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle("1b")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    numbers = []
    for share in (0.0, LEFT_OUT["1b"], 0.0, LEFT_OUT["1b"]):
        with Engine(bundle, memory_budget=budget_of(bundle, share), **LIMITS) as engine:
            assert engine.info.is_calibrated
        numbers.append(len(list(tmp_path.rglob("calibration-*.json"))))
    assert numbers == [1, 2, 2, 2]


def test_what_does_not_fit_even_so_is_refused(make_bundle: Callable[[str], Path]) -> None:
    bundle = make_bundle("1b")
    budget = budget_of(bundle, 0.99)
    with pytest.raises(BudgetTooSmallError, match=rf"(?s)memory_budget_bytes is {budget} .*streamed weights"):
        Engine(bundle, memory_budget=budget, **LIMITS)
    with Engine(bundle, memory_budget=budget_of(bundle, 0.5), **LIMITS) as engine:
        assert len(engine.generate([5, 6], max_new_tokens=8, ignore_eos=True).token_ids) == 8


def test_the_plan_shows_what_streams(make_bundle: Callable[[str], Path], cli: CommandLine) -> None:
    bundle = make_bundle("1b")
    shown = cli("plan", bundle, "--device", "cuda", "--max-context", 512, "--memory-budget", "1000MiB")
    assert shown.exit_code == 0, shown.err
    assert re.search(r"streamed: [\d.]+ MiB of the target's weights", shown.out + shown.err)
