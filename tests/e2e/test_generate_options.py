"""What options do to whole generations: as transformers does, trimmed at one index, and refused where they conflict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from every_option import EVERY_OPTION
from transformers import AutoModelForCausalLM

from pilotfish import Engine
from pilotfish.bindings import CallbackFailedError, Finish, InvalidArgumentError, Mask, NoTokenLeftError, calls
from pilotfish.runtime import GenerateOptions
from pilotfish.runtime.memory import resident_memory_bytes
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, PLAIN, Source, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

EOS = 257
EVERYTHING: dict[str, Any] = EVERY_OPTION | {"logprobs": 5, "ignore_eos": True}


@pytest.fixture(scope="module")
def pair(tiny_bundle: Path) -> Iterator[Engine]:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        yield engine


def every_source(engine: Engine) -> list[Source]:
    return [Source("plain", PLAIN), *sources_of(engine)]


def prompts(number: int = 5) -> list[list[int]]:
    return [[(7 * index + 11 * at) % 256 for at in range(3 + 5 * index)] for index in range(number)]


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.4},
        {"no_repeat_ngram_size": 2},
        {"min_new_tokens": 10},
        {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_new_tokens": 12},
    ],
)
def test_greedy_tokens_are_those_of_transformers(
    toy_bundle: Path, checkpoints: dict[str, Path], options: dict[str, Any]
) -> None:
    """The float32 toy pair, whose vocabulary of twelve repeats itself at once."""
    model = AutoModelForCausalLM.from_pretrained(checkpoints["toy"], dtype=torch.float32)
    with Engine(toy_bundle, threads=1, max_draft_tokens=MAX_DRAFT_TOKENS) as engine:
        for prompt in ([1, 5, 3], [0], [2, 2, 7, 9, 4, 1]):
            expected = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, **options)
            for source in (
                {"num_draft_tokens": 0},
                {"num_draft_tokens": 4},
                {"tree": "dynamic", "tree_nodes": 10, "tree_depth": 3},
            ):
                result = engine.generate(prompt, max_new_tokens=24, **source, **options)
                assert list(result.token_ids) == expected[0, len(prompt) :].tolist()


def test_a_stop_string_trims_everything_at_one_index(pair: Engine) -> None:
    """Ids, logprobs and text end with the token that completes it, and so does what the caches keep."""
    for prompt in prompts(3):
        free = pair.generate(prompt, max_new_tokens=30, ignore_eos=True, logprobs=2, **PLAIN)
        text = free.text
        for stop in {text[at : at + 2] for at in range(0, len(text) - 1, 3)}:
            results = [
                pair.generate(prompt, max_new_tokens=30, ignore_eos=True, stop=stop, logprobs=2, **source.options)
                for source in every_source(pair)
            ]
            for result in results:
                number = len(result.token_ids)
                assert (result.text, result.finish_reason) == (text[: text.index(stop)], "stop")
                assert result.token_ids == free.token_ids[:number] == results[0].token_ids
                assert result.logprobs == free.logprobs[:number]
                assert result.top_logprobs == free.top_logprobs[:number]
                assert result.stats.num_new_tokens == number
                assert 0 <= result.stats.num_accepted <= min(number, result.stats.num_drafted)


def test_a_turn_after_a_stop_string_continues_from_what_was_emitted(pair: Engine) -> None:
    for index, source in enumerate(every_source(pair)):
        prompt = [(index * 17 + at * 3) % 256 for at in range(40)]
        free = pair.generate(prompt, max_new_tokens=30, ignore_eos=True, reuse_prefix=False, **PLAIN)
        stop = free.text[len(free.text) // 2 :][:2]
        first = pair.generate(prompt, max_new_tokens=30, ignore_eos=True, stop=stop, **source.options)
        longer = [*prompt, *first.token_ids, 5, 6, 7]
        reused = pair.generate(longer, max_new_tokens=20, ignore_eos=True, **source.options)
        fresh = pair.generate(longer, max_new_tokens=20, ignore_eos=True, reuse_prefix=False, **PLAIN)
        assert reused.token_ids == fresh.token_ids, source.name
        assert reused.logprobs == fresh.logprobs
        # All but the last token emitted, which no cache has, and the three new ones; whole blocks are shared.
        num_reused = len(longer) - reused.stats.num_prefilled_target
        assert len(prompt) - pair.info.block_size <= num_reused < len(prompt) + len(first.token_ids)
        pair.check()


def test_stop_strings_wait_for_the_least_length(pair: Engine) -> None:
    prompt = prompts()[1]
    free = pair.generate(prompt, max_new_tokens=40, ignore_eos=True, **PLAIN)
    stop = free.text[0]
    assert pair.generate(prompt, max_new_tokens=40, ignore_eos=True, stop=stop).text == ""
    for source in every_source(pair):
        result = pair.generate(
            prompt, max_new_tokens=40, ignore_eos=True, stop=stop, min_new_tokens=5, **source.options
        )
        assert len(result.token_ids) >= 5
        assert result.token_ids == free.token_ids[: len(result.token_ids)]
        assert free.text.startswith(result.text)


def test_a_stop_id_does_not_swallow_text_that_may_begin_a_stop_string(pair: Engine) -> None:
    ids = pair.encode("xy")
    bias = {ids[0]: 50.0}
    result = pair.generate("a", max_new_tokens=4, stop="xxxxxx", stop_ids=[ids[1]], logit_bias=bias)
    assert (result.text, result.finish_reason) == ("xxxx", "length")
    bias = {ids[1]: 50.0}
    result = pair.generate("a", max_new_tokens=4, stop="yyyyyy", stop_ids=[ids[1]], logit_bias=bias)
    assert (result.text, result.finish_reason) == ("y", "stop")


def test_an_echo_is_the_prompt_with_the_targets_logprobs(pair: Engine) -> None:
    for source in every_source(pair):
        for prompt in [[65], *prompts(3)]:
            options: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True, "logprobs": 2, **source.options}
            plain = pair.generate(prompt, **options)
            with pair.stream(prompt, echo=True, **options) as stream:
                events = list(stream)
                result = stream.result()
            assert result.token_ids == (*prompt, *plain.token_ids)
            assert "".join(event.text for event in events) == result.text == pair.decode([*prompt, *plain.token_ids])
            origins = [event.origin for event in events]
            assert origins[: len(prompt)] == ["prompt"] * len(prompt)
            assert "prompt" not in origins[len(prompt) :]
            assert result.logprobs[len(prompt) :] == plain.logprobs
            assert result.top_logprobs[len(prompt) :] == plain.top_logprobs
            assert math.isnan(result.logprobs[0])
            assert result.top_logprobs[0] == ()
            if len(prompt) > 1:
                logits = pair.logits(prompt)[:-1].astype(np.float64)
                expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
                found = result.logprobs[1 : len(prompt)]
                np.testing.assert_allclose(found, expected[np.arange(len(prompt) - 1), prompt[1:]], atol=1e-4)
            assert result.stats.num_prompt_tokens == len(prompt)
            assert result.stats.num_new_tokens == 12


Fill = Callable[[Sequence[int], "NDArray[np.uint32]"], None]


def masked(engine: Engine, fill: Fill, emitted: list[int], **options: Any) -> None:
    """Greedy tokens under a mask, through the bindings: appended to ``emitted`` step by step."""
    mask = Mask(fill, engine.info.vocab_size)
    request = GenerateOptions(**options).to_request(has_draft=True, max_draft_tokens=MAX_DRAFT_TOKENS, mask=mask)
    finish = Finish.NONE
    with calls.request_open(engine._handle, np.array([65, 66], np.int32), request) as handle:
        while finish is Finish.NONE:
            tokens, finish = calls.request_step(handle)
            emitted += [token.id for token in tokens]


@pytest.mark.parametrize("least", [0, 4])
def test_a_mask_sees_each_path_once_a_step(pair: Engine, least: int) -> None:
    """An id may follow smaller ones only, up to an end of text, which nothing follows."""

    def run(**source: Any) -> list[int]:
        emitted: list[int] = []
        asked: set[tuple[int, ...]] = set()

        def fill(path: Sequence[int], words: NDArray[np.uint32]) -> None:
            text = (*emitted, *path)
            assert text not in asked
            assert not words.any()
            assert EOS not in text
            asked.add(text)
            for token in range(text[-1] + 1 if text else 0, 258):
                words[token // 32] |= np.uint32(1 << token % 32)

        masked(pair, fill, emitted, max_new_tokens=12, min_new_tokens=least, **source)
        return emitted

    plain = run(num_draft_tokens=0)
    assert plain == sorted(set(plain))
    assert len(plain) > least
    for source in sources_of(pair):
        assert run(**source.options) == plain, source.name


def test_what_a_mask_raises_is_the_cause(pair: Engine) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of the grammar")

    with pytest.raises(CallbackFailedError, match="mask callback returned 1") as caught:
        masked(pair, fail, [])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert pair.generate("still usable", max_new_tokens=3).stats.num_new_tokens == 3
    pair.check()


def test_no_token_left_is_named_and_the_engine_usable(pair: Engine) -> None:
    every = dict.fromkeys(range(258), float("-inf"))
    for options in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 5}):
        with pytest.raises(NoTokenLeftError, match="follow 0 new tokens: together these ban every id: logit_bias"):
            pair.generate("x", logit_bias=every, **options)
        with pytest.raises(NoTokenLeftError, match=r"follow 0 new tokens: .* logit_bias, min_new_tokens"):
            pair.generate("x", logit_bias=every | {EOS: 0.0}, min_new_tokens=1, **options)
        ended = pair.generate("x", logit_bias=every | {EOS: 0.0}, **options)
        assert ended.finish_reason == "eos"
    with pytest.raises(NoTokenLeftError, match=r"follow 2 new tokens: .* logit_bias, no_repeat_ngram_size"):
        pair.generate([1], logit_bias=every | {2: 0.0, 3: 0.0}, no_repeat_ngram_size=1, num_draft_tokens=4)
    with pytest.raises(NoTokenLeftError, match="mask"):
        masked(pair, lambda *_: None, [])
    assert pair.generate("still usable", max_new_tokens=3).stats.num_new_tokens == 3
    pair.check()


def test_ids_outside_the_vocabulary_are_refused(pair: Engine) -> None:
    with pytest.raises(InvalidArgumentError, match="stop_ids has id 258, outside the vocabulary of 258"):
        pair.generate("x", stop_ids=[258])
    with pytest.raises(InvalidArgumentError, match="logit_bias has id 300, outside the vocabulary of 258"):
        pair.generate("x", logit_bias={300: 1.0})


def test_every_option_on_leaves_no_memory_behind(pair: Engine) -> None:
    def run(index: int) -> None:
        prompt = [(index * 31 + at) % 256 for at in range(1 + index % 60)]
        options = EVERYTHING | {"temperature": (index % 3) / 2, "seed": index, "echo": index % 5 == 0}
        pair.generate(prompt, max_new_tokens=40, num_draft_tokens=index % 9, **options)

    for index in range(60):
        run(index)
    before = resident_memory_bytes()
    for index in range(120):
        run(index)
    assert resident_memory_bytes() - before < 2 * 2**20
