"""The official client gets from a server what the engine itself gives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
import pytest
from serving import NAME, ask

if TYPE_CHECKING:
    from pilotfish import Engine

MESSAGES: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}]
GREEDY: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "temperature": 0, "max_tokens": 24}
SAMPLED = GREEDY | {"temperature": 0.9, "top_p": 0.9, "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.25}


def engines_own(direct: Engine, **options: Any) -> Any:
    return direct.chat(MESSAGES, **{"max_new_tokens": 24, **options})


def test_models_are_listed_and_described(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).owned_by == "pilotfish"
    with pytest.raises(openai.NotFoundError, match="model is 'other', must be one of tiny"):
        client.models.retrieve("other")


def test_health(address: str) -> None:
    assert ask(address, "/health").content == {"status": "ok"}


def test_a_chat_is_answered_as_by_the_engine(client: openai.OpenAI, direct: Engine) -> None:
    answer = client.chat.completions.create(**GREEDY)
    expected = engines_own(direct)
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "length"
    assert answer.model == NAME
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == expected.stats.num_prompt_tokens
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == expected.stats.num_prompt_tokens + 24


def test_usage_tells_what_was_drafted(client: openai.OpenAI, direct: Engine) -> None:
    options: Any = {"extra_body": {"source": "draft", "num_draft_tokens": 3}}
    usage = client.chat.completions.create(**GREEDY, **options).usage
    stats = engines_own(direct, source="draft", num_draft_tokens=3).stats
    assert usage is not None
    assert usage.model_dump()["drafted_tokens"] == stats.num_drafted > 0
    assert usage.model_dump()["accepted_tokens"] == stats.num_accepted


def test_a_sampled_chat_is_the_seeds_text(client: openai.OpenAI, direct: Engine) -> None:
    options = {"temperature": 0.9, "top_p": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    expected = engines_own(direct, seed=7, **options)
    assert client.chat.completions.create(**SAMPLED).choices[0].message.content == expected.text


def test_no_temperature_is_the_protocols_1(client: openai.OpenAI, direct: Engine) -> None:
    asked = {name: value for name, value in SAMPLED.items() if name in ("model", "messages", "max_tokens", "seed")}
    expected = engines_own(direct, seed=7, temperature=1.0)
    assert client.chat.completions.create(**asked).choices[0].message.content == expected.text


def test_a_negative_seed_is_a_seed(client: openai.OpenAI, direct: Engine) -> None:
    answer = client.chat.completions.create(**SAMPLED | {"seed": -1, "presence_penalty": 0, "frequency_penalty": 0})
    expected = engines_own(direct, seed=2**64 - 1, temperature=0.9, top_p=0.9)
    assert answer.choices[0].message.content == expected.text


@pytest.mark.parametrize("asked", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_stream_is_the_same_answer_in_pieces(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == (
        whole.choices[0].message.content
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_a_stream_without_usage_ends_with_the_reason(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(**GREEDY, stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"


def test_a_stop_string_ends_the_text(client: openai.OpenAI, direct: Engine) -> None:
    text = engines_own(direct).text
    stop = text[len(text) // 2]
    for is_streamed in (False, True):
        answer: Any = client.chat.completions.create(**GREEDY, stop=[stop], stream=is_streamed)
        if is_streamed:
            chunks = list(answer)
            found = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            reason = chunks[-1].choices[0].finish_reason
        else:
            found, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert (found, reason) == (text[: text.index(stop)], "stop")


def test_logit_bias_bans_a_token(client: openai.OpenAI, direct: Engine) -> None:
    first = engines_own(direct).token_ids[0]
    answer = client.chat.completions.create(**GREEDY, logit_bias={str(first): -1000})
    assert answer.choices[0].message.content == engines_own(direct, logit_bias={first: -1000.0}).text


def test_without_a_length_the_context_ends_it(client: openai.OpenAI, direct: Engine) -> None:
    asked = {name: value for name, value in GREEDY.items() if name != "max_tokens"}
    answer = client.chat.completions.create(**asked, logit_bias={str(direct.manifest.tokenizer.eos_ids[0]): -1000})
    assert answer.usage is not None
    assert answer.usage.total_tokens >= direct.info.max_context - 1
    assert answer.choices[0].finish_reason == "length"


def test_text_is_continued_as_by_the_engine(client: openai.OpenAI, direct: Engine) -> None:
    answer = client.completions.create(model=NAME, prompt="Once upon", temperature=0, max_tokens=20)
    expected = direct.generate("Once upon", max_new_tokens=20)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (expected.text, "length")
    chunks = client.completions.create(model=NAME, prompt="Once upon", temperature=0, max_tokens=20, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected.text


def test_text_has_16_tokens_unless_told_otherwise(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=NAME, prompt="Once upon", temperature=0)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


def test_many_prompts_are_continued_in_their_order(client: openai.OpenAI, direct: Engine) -> None:
    prompts = ["one", "two", "three"]
    answer = client.completions.create(model=NAME, prompt=prompts, temperature=0.8, seed=3, n=2, max_tokens=8)
    expected = [
        direct.generate(prompt, max_new_tokens=8, temperature=0.8, seed=seed) for prompt in prompts for seed in (3, 4)
    ]
    assert [choice.text for choice in answer.choices] == [result.text for result in expected]
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(map(len, prompts))  # a token a byte


def test_token_ids_and_echo(client: openai.OpenAI, direct: Engine) -> None:
    ids = direct.encode("echo")
    answer = client.completions.create(model=NAME, prompt=ids, temperature=0, max_tokens=4, echo=True)
    assert answer.choices[0].text == direct.generate("echo", max_new_tokens=4, echo=True).text
    assert answer.choices[0].text.startswith("echo")


def test_the_asynchronous_client(address: str, direct: Engine) -> None:
    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:

            async def answered(seed: int) -> str:
                stream = await client.chat.completions.create(**SAMPLED | {"seed": seed}, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return list(await asyncio.gather(*map(answered, range(8))))

    options = {"temperature": 0.9, "top_p": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    assert asyncio.run(run()) == [engines_own(direct, seed=seed, **options).text for seed in range(8)]


def test_origins_of_tokens(client: openai.OpenAI, direct: Engine) -> None:
    options: Any = {"extra_body": {"token_origins": True, "source": "draft", "num_draft_tokens": 4}}
    events = list(direct.stream_chat(MESSAGES, max_new_tokens=24, source="draft", num_draft_tokens=4))
    expected = [{"text": event.text, "origin": event.origin} for event in events]
    choice = client.chat.completions.create(**GREEDY, **options).choices[0]
    assert choice.model_dump()["token_origins"] == expected
    chunks = client.chat.completions.create(**GREEDY, **options, stream=True)
    told = [each for chunk in chunks for each in chunk.choices[0].model_dump().get("token_origins", ())]
    assert told == expected
    assert {"accepted", "corrected"} <= {each["origin"] for each in expected}
