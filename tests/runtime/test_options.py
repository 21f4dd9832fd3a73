"""Every option is checked, and its message names the value and the limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pilotfish.bindings import DraftSource, InvalidArgumentError, PilotfishError, limits
from pilotfish.runtime.memory import format_bytes, parse_bytes, peak_memory_bytes, resident_memory_bytes
from pilotfish.runtime.option_checks import prompt_array
from pilotfish.runtime.options import GenerateOptions


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("max_new_tokens", 0, "1..4194304"),
        ("num_draft_tokens", 64, "0..63"),
        ("num_draft_tokens", -1, "0..63"),
        ("source", "oracle", "auto, plain, draft, lookup, lookup+draft"),
        ("temperature", -0.5, "0 (greedy) to 100"),
        ("temperature", math.nan, "0 (greedy) to 100"),
        ("temperature", 100.5, "0 (greedy) to 100"),
        ("top_k", -1, "0..2147483647"),
        ("top_p", 0.0, "(0, 1]"),
        ("top_p", 1.5, "(0, 1]"),
        ("min_p", 1.0, "[0, 1)"),
        ("min_p", math.nan, "[0, 1)"),
        ("top_p", math.nan, "(0, 1]"),
        ("top_p", "0.5", "(0, 1]"),
        ("typical_p", 0.0, "(0, 1]"),
        ("typical_p", 1.01, "(0, 1]"),
        ("repetition_penalty", 0.0, "(0, 100]"),
        ("repetition_penalty", math.nan, "(0, 100]"),
        ("repetition_penalty", math.inf, "(0, 100]"),
        ("presence_penalty", 101.0, "[-100, 100]"),
        ("frequency_penalty", math.nan, "[-100, 100]"),
        ("penalty_window", -1, "0..2147483647"),
        ("no_repeat_ngram_size", -1, "0..2147483647"),
        ("no_repeat_ngram_size", 1.5, "0..2147483647"),
        ("min_new_tokens", -1, "0..2147483647"),
        ("logprobs", 257, "0..256"),
        ("seed", 2**64, "0..18446744073709551615"),
        ("stop", ("",), "non-empty"),
        ("stop", (b"x",), "non-empty"),
        ("stop", 7, "a string or a sequence of strings"),
        ("stop_ids", (-1,), "0..2147483647"),
        ("stop_ids", 7, "a sequence of token ids"),
        ("max_new_tokens", True, "1..4194304"),
        ("logprobs", True, "0..256"),
        ("temperature", False, "0 (greedy) to 100"),
        ("ignore_eos", "no", "True or False"),
        ("reuse_prefix", 1, "True or False"),
        ("echo", None, "True or False"),
        ("explain", "", "True or False"),
        ("source", None, "auto, plain, draft"),
        ("tree", 3, '"dynamic"'),
        ("tree", "3-2", '"dynamic"'),
        ("typical_acceptance", 0.3, "a sequence of two numbers"),
    ],
)
def test_a_value_outside_its_range_is_named_with_its_limit(name: str, value: Any, limit: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        GenerateOptions(**{name: value})
    shown = value[0] if isinstance(value, tuple) else value
    assert str(caught.value).startswith(f"{name} is {shown!r}, must be ")
    assert limit in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_tree_is_checked_before_an_engine_is_there() -> None:
    for options, words in (
        ({"tree": "dynamic", "tree_nodes": 64}, r"tree_nodes is 64, must be an integer in 1\.\.63"),
        ({"tree": "dynamic", "tree_nodes": 4.0}, "tree_nodes is 4.0, must be an integer"),
        ({"tree_nodes": 4}, 'tree_nodes is 4, but only tree="dynamic" has it'),
        ({"source": "plain", "num_draft_tokens": 4}, "num_draft_tokens is 4, but the source 'plain' drafts nothing"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            GenerateOptions(**options)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    options = GenerateOptions(max_new_tokens=np.int64(3), seed=np.uint64(5), temperature=np.float32(0.5))
    request = options.to_request(has_draft=False, max_draft_tokens=0)
    assert (request.max_new_tokens, request.seed, request.temperature) == (3, 5, 0.5)
    assert type(request.seed) is int


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        ({3: math.nan}, "logit_bias of id 3 is nan, must be a number or -inf"),
        ({3: math.inf}, "logit_bias of id 3 is inf, must be a number or -inf"),
        ({-1: 0.0}, "an id of logit_bias is -1, must be an integer in 0..2147483647"),
        ({"the": 1.0}, "an id of logit_bias is 'the', must be an integer"),
        ([(1, 2.0)], "logit_bias is .*, must map token ids to numbers"),
    ],
)
def test_a_logit_bias_that_is_none_is_refused(bias: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        GenerateOptions(logit_bias=bias)


def test_a_least_length_above_the_greatest_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="min_new_tokens is 11, must be at most max_new_tokens, 10"):
        GenerateOptions(min_new_tokens=11, max_new_tokens=10)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="temprature"):
        GenerateOptions(temprature=1.0)  # type: ignore[call-arg]


def test_by_default_as_many_tokens_are_drafted_as_pay_from_whatever_source() -> None:
    for has_draft in (False, True):
        request = GenerateOptions(seed=3).to_request(has_draft=has_draft, max_draft_tokens=8)
        assert (request.num_draft_tokens, request.draft_source) == (limits.AS_MANY_AS_PAY, DraftSource.AUTO)
    fixed = GenerateOptions(num_draft_tokens=3).to_request(has_draft=True, max_draft_tokens=8)
    assert (fixed.num_draft_tokens, fixed.draft_source) == (3, DraftSource.AUTO)
    lookup = GenerateOptions(source="lookup", num_draft_tokens=3).to_request(has_draft=False, max_draft_tokens=8)
    assert (lookup.num_draft_tokens, lookup.draft_source) == (3, DraftSource.LOOKUP)


@pytest.mark.parametrize("source", ["draft", "lookup+draft"])
def test_a_source_that_the_bundle_lacks_is_refused(source: str) -> None:
    with pytest.raises(InvalidArgumentError, match="the bundle has no draft"):
        GenerateOptions(source=source).to_request(has_draft=False, max_draft_tokens=8)


def test_a_tree_is_the_draft_models() -> None:
    with pytest.raises(InvalidArgumentError, match="the draft model or the head drafts it"):
        GenerateOptions(tree="dynamic", source="lookup").to_request(has_draft=True, max_draft_tokens=8)


def test_looked_up_tokens_have_places_in_trees() -> None:
    request = GenerateOptions(tree="dynamic", source="lookup+draft").to_request(has_draft=True, max_draft_tokens=8)
    assert (request.tree_nodes, request.draft_source) == (8, DraftSource.LOOKUP_MODEL)


def test_drafting_without_a_draft_or_beyond_the_engines_limit_is_refused() -> None:
    options = GenerateOptions(num_draft_tokens=5)
    with pytest.raises(InvalidArgumentError, match="the bundle has no draft"):
        options.to_request(has_draft=False, max_draft_tokens=8)
    with pytest.raises(InvalidArgumentError, match=r"num_draft_tokens is 5, must be an integer in 0\.\.4"):
        options.to_request(has_draft=True, max_draft_tokens=4)


def test_a_missing_seed_is_drawn_afresh() -> None:
    seeds = {GenerateOptions().to_request(has_draft=False, max_draft_tokens=0).seed for _ in range(8)}
    assert len(seeds) == 8


def test_prompt_ids_outside_the_vocabulary_are_named() -> None:
    assert prompt_array([0, 9], 10).tolist() == [0, 9]
    with pytest.raises(InvalidArgumentError, match=r"token 1 has the id 10, must be in 0\.\.9"):
        prompt_array([0, 10], 10)
    with pytest.raises(InvalidArgumentError, match="token 0 has the id -1"):
        prompt_array([-1], 10)


@pytest.mark.parametrize("prompt", [[], [1.5], ["a"], [2**70], [[1, 2]], 7])
def test_a_prompt_that_is_none_is_refused(prompt: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a non-empty text or sequence of token ids"):
        prompt_array(prompt, 10)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("6GiB", 6 * 2**30), (" 1.5 GB ", 1_500_000_000), ("512mib", 2**29), ("4096", 4096), (4096, 4096), ("1 B", 1)],
)
def test_sizes_are_read_with_their_units(text: str | int, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "6 XB", "-1", "0", "1e9", "six", -5, 0])
def test_sizes_that_are_none_are_refused(text: str | int) -> None:
    with pytest.raises(PilotfishError, match="memory size is"):
        parse_bytes(text)


def test_bytes_are_shown_in_the_largest_fitting_unit() -> None:
    assert [format_bytes(size) for size in (0, 1023, 1536, 5 * 2**20, 7 * 2**30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "7.0 GiB",
    ]


def test_peak_memory_is_at_least_the_resident_memory() -> None:
    assert peak_memory_bytes() >= resident_memory_bytes() * 0.99 > 2**20
