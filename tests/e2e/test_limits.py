"""Python and the native library refuse the same values, which they both are asked about here."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish.bindings import Device, EngineOptions, InvalidArgumentError, UnsupportedError, calls
from pilotfish.runtime.engine_options import engine_options
from pilotfish.runtime.options import GenerateOptions
from pilotfish.runtime.speculation import SpeculationArguments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pilotfish import Engine

FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 100.0, 100.000001, 100.0001, -100.000001, -100.0001, 1e300, -1e300),
    *(1e-30, 1e-37, 9.9e-38, 1e-38, 1e-40, 1e-46, 1e-50, 1 - 1e-11, 1 + 1e-11, 1 - 1e-7, 1 + 2e-7),
    *(math.nan, math.inf, -math.inf),
)
INTS = (-(2**31) - 1, -(2**31), -1, 0, 1, 8, 9, 63, 64, 256, 257, 4096, 4097, 2**22, 2**22 + 1, 2**31 - 1, 2**31, 2**64)
FLOAT_OPTIONS = (
    *("temperature", "top_p", "min_p", "typical_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
INT_OPTIONS = ("max_new_tokens", "top_k", "penalty_window", "no_repeat_ngram_size")


def accepts(call: Callable[[], object]) -> bool:
    """Whether a value is within its limits. cffi refuses what no C type holds."""
    try:
        call()
    except (InvalidArgumentError, OverflowError):
        return False
    return True


def library_accepts(engine: Engine, base: dict[str, Any], **fields: Any) -> bool:
    options = GenerateOptions(**{"max_new_tokens": 4} | base)
    request = options.to_request(has_draft=True, max_draft_tokens=8)
    if "logit_bias" in fields:
        request = dataclasses.replace(request, logit_bias=fields.pop("logit_bias"))
    request = dataclasses.replace(request, numbers={**request.numbers, **fields})
    prompt = np.array([1, 2], np.int32)

    def open_request() -> None:
        calls.request_open(engine._handle, prompt, request).close()

    return accepts(open_request)


@pytest.mark.parametrize("name", FLOAT_OPTIONS)
def test_floats(engine: Engine, name: str) -> None:
    verdicts = {value: accepts(lambda value=value: GenerateOptions(**{name: value})) for value in FLOATS}
    assert verdicts == {value: library_accepts(engine, {}, **{name: value}) for value in FLOATS}
    assert {True, False} == set(verdicts.values())


@pytest.mark.parametrize("name", INT_OPTIONS)
def test_integers(engine: Engine, name: str) -> None:
    verdicts = {value: accepts(lambda value=value: GenerateOptions(**{name: value})) for value in INTS}
    assert verdicts == {value: library_accepts(engine, {}, **{name: value}) for value in INTS}
    assert {True, False} == set(verdicts.values())


def test_integers_of_another_name(engine: Engine) -> None:
    for value in INTS:
        assert accepts(lambda value=value: GenerateOptions(logprobs=value)) == library_accepts(
            engine, {}, num_top_logprobs=value
        )
        assert accepts(lambda value=value: GenerateOptions(seed=value)) == library_accepts(engine, {}, seed=value)
        assert accepts(
            lambda value=value: GenerateOptions(num_draft_tokens=value).to_request(has_draft=True, max_draft_tokens=8)
        ) == (value != -1 and library_accepts(engine, {}, num_draft_tokens=value))  # -1 is the library's None


def test_floats_in_lists(engine: Engine) -> None:
    for value in FLOATS:
        assert accepts(lambda value=value: GenerateOptions(logit_bias={1: value})) == library_accepts(
            engine, {}, logit_bias=((1, value),)
        ), value
        for epsilon, delta in ((value, 0.5), (0.5, value)):
            given = {"typical_acceptance": (epsilon, delta), "temperature": 1.0}
            assert accepts(lambda given=given: GenerateOptions(**given)) == library_accepts(
                engine, {"temperature": 1.0}, typical_epsilon=epsilon, typical_delta=delta
            ), (epsilon, delta)


@pytest.mark.parametrize("temperature", [0.0, 1e-46, 1e-38, 9.9e-38])
def test_what_needs_a_temperature(engine: Engine, temperature: float) -> None:
    typical = {"typical_epsilon": 0.3, "typical_delta": 0.3}
    assert not accepts(lambda: GenerateOptions(temperature=temperature, typical_acceptance=(0.3, 0.3)))
    assert not library_accepts(engine, {"temperature": temperature}, **typical)
    assert library_accepts(engine, {"temperature": 1e-37}, **typical)


@pytest.mark.parametrize("filters", [{}, {"top_k": 4}, {"top_p": 0.9}, {"min_p": 0.05}, {"typical_p": 0.9}], ids=str)
def test_the_smallest_temperatures_are_greedy(engine: Engine, filters: dict[str, Any]) -> None:
    expected = engine.generate("cold", max_new_tokens=20).token_ids
    for temperature in (1e-30, 1e-36, 1e-37, 9.9e-38, 1e-39, 1e-45, 1e-46, 1e-300):
        for source in ("plain", "draft", "auto"):
            result = engine.generate("cold", max_new_tokens=20, temperature=temperature, source=source, **filters)
            assert result.token_ids == expected, (temperature, source)


def test_a_message_says_what_a_double_becomes() -> None:
    with pytest.raises(InvalidArgumentError, match=r"min_p is 0\.99999999999, must be in \[0, 1\) .*32-bit float 1\.0"):
        GenerateOptions(min_p=0.99999999999)
    with pytest.raises(InvalidArgumentError, match=r"top_p is 1e-50, must be in \(0, 1\] .*32-bit float 0\.0"):
        GenerateOptions(top_p=1e-50)


def test_penalties_and_biases_that_leave_the_numbers(engine: Engine) -> None:
    """A bias at the end of a float's range, divided by a penalty near zero, is still the likeliest token."""
    for options in ({"repetition_penalty": 1e-30}, {"logit_bias": {65: 3.4e38}, "repetition_penalty": 0.01}):
        for temperature in (0.0, 1.0):
            result = engine.generate([65, 66], max_new_tokens=4, temperature=temperature, seed=1, **options)
            assert len(result.token_ids) == 4


DEFAULTS: dict[str, Any] = {
    "device": "cpu",
    "threads": None,
    "memory_budget": None,
    "max_context": None,
    "max_draft_tokens": 8,
    "num_sequences": 1,
    "prefill_chunk": None,
    "library": "",
}


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("threads", "num_threads", (-1, 1, 1024, 1025, 2**31 - 1, 2**31)),
        ("prefill_chunk", "prefill_chunk", (-1, 1, 4096, 4097, 2**31)),
        ("max_wait_ms", "max_wait_ms", (-1, 1, 60000, 60001, 2**31)),
        ("num_sequences", "num_sequences", (-1, 0, 1, 1024, 1025, 2**31)),
        ("max_draft_tokens", "max_draft_tokens", (-1, 0, 63, 64, 2**31)),
        ("memory_budget", "memory_budget_bytes", (-1, 2**64 - 1, 2**64)),
        ("draft_window", "draft_window", (-1, 0, 1, 63, 64, 2**22, 2**22 + 1, 2**31)),
        ("lookup_store_size", "lookup_store_bytes", (2**12 - 1, 2**12, 2**30, 2**30 + 1)),
        ("device", "device_index", (0, 1, 1024, 1025)),
    ],
)
def test_options_of_an_engine(
    plain_bundle: Path, tmp_path: Path, name: str, field: str, values: tuple[int, ...]
) -> None:
    store = str(tmp_path / "store") if name == "lookup_store_size" else None

    def ask_python(value: int) -> None:
        if name in ("draft_window", "lookup_store_size"):
            arguments = SpeculationArguments(**{name: value}, lookup_store=store)
            engine_options(**DEFAULTS, speculation=arguments)
        else:
            engine_options(**DEFAULTS | {name: f"cuda:{value}" if name == "device" else value})

    def ask_library(value: int) -> None:
        device = Device.CUDA if name == "device" else Device.CPU
        options = EngineOptions(ort_library="", device=device, lookup_store=store, **{field: value})
        try:
            calls.plan(str(plain_bundle), options)
        except UnsupportedError:  # a GPU that is not here, or a format that it lacks
            assert device is Device.CUDA

    verdicts = {value: accepts(lambda value=value: ask_python(value)) for value in values}
    assert verdicts == {value: accepts(lambda value=value: ask_library(value)) for value in values}
    assert {True, False} == set(verdicts.values())


def test_a_context_beyond_any_model(plain_bundle: Path) -> None:
    for value in (0, 2**22 + 1, 2**31):
        assert not accepts(lambda value=value: engine_options(**DEFAULTS | {"max_context": value}))
    for value in (-1, 2**22 + 1, 2**31):
        options = EngineOptions(ort_library="", max_context=value)
        assert not accepts(lambda options=options: calls.plan(str(plain_bundle), options))
