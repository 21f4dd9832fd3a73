"""Tools, structured output, logprobs and choices, as the official client asks for them and gets them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal

import pydantic
import pytest
from serving import NAME, ask

if TYPE_CHECKING:
    import openai

    from pilotfish import Engine

MESSAGES: list[Any] = [{"role": "user", "content": "Weather?"}]
ASKED: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "temperature": 0, "max_tokens": 120}
PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": PLACE}},
    {"type": "function", "function": {"name": "clock"}},
]
CALL = r'<tool_call>\n\{"name": "weather", "arguments": \{"city": "(Rome|Oslo)"\}\}\n</tool_call>'


@pytest.fixture
def brief(direct: Engine) -> dict[str, Any]:
    """A model of random weights writes blanks between JSON's tokens as long as it may: they are banned."""
    return {"logit_bias": {str(token_id): -1000 for token_id in direct.encode(" \n\t\r")}}


def streamed(client: openai.OpenAI, **asked: Any) -> tuple[str, list[dict[str, Any]], str]:
    """Text, calls and reason of a stream, as a client puts them together."""
    text, calls, reason = "", [], ""
    for chunk in client.chat.completions.create(**ASKED | asked, stream=True):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for call in delta.tool_calls or ():
            assert call.index == len(calls)
            assert call.function is not None
            calls.append({"name": call.function.name, "arguments": json.loads(call.function.arguments or "")})
        reason = chunk.choices[0].finish_reason or reason
    return text, calls, reason


def whole(client: openai.OpenAI, **asked: Any) -> tuple[str | None, list[dict[str, Any]], str]:
    choice = client.chat.completions.create(**ASKED | asked).choices[0]
    calls = [
        {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
        for call in choice.message.tool_calls or ()
    ]
    return choice.message.content, calls, choice.finish_reason


def test_a_named_function_is_called(client: openai.OpenAI, brief: dict[str, Any]) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    content, calls, reason = whole(client, tools=TOOLS, tool_choice=choice, **brief)
    assert content is None
    assert [call["name"] for call in calls] == ["weather"]
    assert calls[0]["arguments"]["city"] in ("Rome", "Oslo")
    assert reason == "tool_calls"
    assert streamed(client, tools=TOOLS, tool_choice=choice, **brief) == ("", calls, reason)


def test_a_call_is_required(client: openai.OpenAI, brief: dict[str, Any]) -> None:
    for seed in range(3):
        names = {tool["function"]["name"] for tool in TOOLS}
        _, calls, reason = whole(client, tools=TOOLS, tool_choice="required", seed=seed, temperature=1, **brief)
        assert len(calls) == 1
        assert calls[0]["name"] in names
        assert reason == "tool_calls"


def test_a_function_without_parameters_gets_none(client: openai.OpenAI, brief: dict[str, Any]) -> None:
    _, calls, _ = whole(client, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "clock"}}, **brief)
    assert calls == [{"name": "clock", "arguments": {}}]


def test_parameters_may_refer_to_their_own_definitions(client: openai.OpenAI, brief: dict[str, Any]) -> None:
    parameters = {
        "$defs": {"Unit": {"enum": ["C", "F"]}},
        "type": "object",
        "properties": {"unit": {"$ref": "#/$defs/Unit"}},
        "required": ["unit"],
        "additionalProperties": False,
    }
    tools = [*TOOLS, {"type": "function", "function": {"name": "degrees", "parameters": parameters}}]
    _, calls, _ = whole(client, tools=tools, tool_choice={"type": "function", "function": {"name": "degrees"}}, **brief)
    assert calls[0]["arguments"]["unit"] in ("C", "F")


@pytest.mark.parametrize("text", ["", "I look\\. "])
def test_a_call_is_found_in_the_answer(client: openai.OpenAI, text: str) -> None:
    asked: dict[str, Any] = {"tools": TOOLS, "extra_body": {"regex": text + CALL}}
    content, calls, reason = whole(client, **asked)
    assert content == ("I look." if text else None)
    assert [call["name"] for call in calls] == ["weather"]
    assert reason == "tool_calls"
    assert streamed(client, **asked) == (content or "", calls, reason)


def test_two_calls_or_one(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"tools": TOOLS, "extra_body": {"regex": CALL + r"\n" + CALL}, "max_tokens": 200}
    _, calls, _ = whole(client, **asked)
    assert len(calls) == 2
    assert streamed(client, **asked)[1] == calls
    assert whole(client, **asked, parallel_tool_calls=False)[1] == calls[:1]
    assert streamed(client, **asked, parallel_tool_calls=False)[1] == calls[:1]


def test_what_is_no_call_stays_text(client: openai.OpenAI) -> None:
    for regex in (r'<tool_call>\{"name": "other"\}</tool_call>', r"<tool_call>\{oops</tool_call>", r"a <tool_cal"):
        asked: dict[str, Any] = {"tools": TOOLS, "extra_body": {"regex": regex}}
        content, calls, reason = whole(client, **asked)
        assert (calls, reason) == ([], "stop")
        assert content == regex.replace("\\", "")
        assert streamed(client, **asked) == (content, [], "stop")


def test_none_leaves_the_tools_out(client: openai.OpenAI, direct: Engine) -> None:
    content, calls, _ = whole(client, tools=TOOLS, tool_choice="none", max_tokens=10)
    assert content == direct.chat(MESSAGES, max_new_tokens=10).text
    assert calls == []


def test_the_conversation_goes_on_after_a_call(client: openai.OpenAI, direct: Engine, brief: dict[str, Any]) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    message = client.chat.completions.create(**ASKED, **brief, tools=TOOLS, tool_choice=choice).choices[0].message
    assert message.tool_calls
    call = message.tool_calls[0]
    turns = [message.model_dump(), {"role": "tool", "content": "21", "tool_call_id": call.id}]
    answer = client.chat.completions.create(**ASKED | {"messages": MESSAGES + turns, "max_tokens": 8}, tools=TOOLS)
    turns[0]["tool_calls"][0]["function"]["arguments"] = json.loads(call.function.arguments)
    kept = [{name: value for name, value in turn.items() if value is not None} for turn in turns]
    expected = direct.chat(MESSAGES + kept, tools=TOOLS, max_new_tokens=8)
    assert answer.choices[0].message.content == expected.text
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == expected.stats.num_prompt_tokens


def test_strict_is_named_where_it_changes_nothing(address: str) -> None:
    tools = [{"type": "function", "function": {"name": "clock", "strict": True}}]
    asked = ASKED | {"tools": tools, "max_tokens": 2, "user": "me"}
    headers = ask(address, "/v1/chat/completions", asked).headers
    assert headers["x-pilotfish-ignored"] == "user, tools.function.strict"
    assert "x-pilotfish-ignored" not in ask(address, "/v1/chat/completions", ASKED | {"max_tokens": 2}).headers


class Answer(pydantic.BaseModel):
    mood: Literal["good", "bad"]
    number: int = pydantic.Field(ge=0, le=9)


def test_structured_output_is_parsed_by_the_client(client: openai.OpenAI, brief: dict[str, Any]) -> None:
    message = client.chat.completions.parse(**ASKED, **brief, response_format=Answer).choices[0].message
    assert message.parsed is not None
    assert message.parsed.mood in ("good", "bad")


def test_structured_output_is_the_engines_own(client: openai.OpenAI, direct: Engine, brief: dict[str, Any]) -> None:
    schema = Answer.model_json_schema() | {"additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    text = client.chat.completions.create(**ASKED, **brief, response_format=form).choices[0].message.content
    bias = dict.fromkeys(map(int, brief["logit_bias"]), -1000.0)
    assert text == direct.chat(MESSAGES, max_new_tokens=120, json_schema=schema, logit_bias=bias).text
    assert json.loads(text or "").keys() == {"mood", "number"}


def test_any_object(client: openai.OpenAI, direct: Engine) -> None:
    text, _, _ = whole(client, response_format={"type": "json_object"}, max_tokens=30)
    assert text == direct.chat(MESSAGES, max_new_tokens=30, json_schema={"type": "object"}).text
    assert text is not None
    assert text.startswith("{")
    assert (
        whole(client, response_format={"type": "text"}, max_tokens=9)[0] == direct.chat(MESSAGES, max_new_tokens=9).text
    )


def test_choices_have_seeds_of_their_own(client: openai.OpenAI, direct: Engine) -> None:
    asked = ASKED | {"n": 3, "seed": 2**64 - 2, "temperature": 1, "max_tokens": 10}
    expected = [
        direct.chat(MESSAGES, max_new_tokens=10, temperature=1.0, seed=seed).text for seed in (2**64 - 2, 2**64 - 1, 0)
    ]
    answer = client.chat.completions.create(**asked)
    assert [choice.message.content for choice in answer.choices] == expected
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 30
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(**asked, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == expected


def test_logprobs_of_a_chat(client: openai.OpenAI, direct: Engine) -> None:
    asked: dict[str, Any] = ASKED | {"logprobs": True, "top_logprobs": 2, "max_tokens": 12}
    expected = direct.chat(MESSAGES, max_new_tokens=12, logprobs=2)
    choice = client.chat.completions.create(**asked).choices[0]
    assert choice.logprobs is not None
    told = choice.logprobs.content or []
    assert [each.logprob for each in told] == list(expected.logprobs)
    assert [[top.logprob for top in each.top_logprobs] for each in told] == [
        [top.logprob for top in tops] for tops in expected.top_logprobs
    ]
    spelled = b"".join(bytes(each.bytes or ()) for each in told)
    assert spelled.replace(b"<s>", b"").decode(errors="replace") == choice.message.content
    assert [each.token for each in told] == [bytes(each.bytes or ()).decode(errors="replace") for each in told]
    chunks = client.chat.completions.create(**asked, stream=True)
    in_stream = [
        each for chunk in chunks if chunk.choices[0].logprobs for each in chunk.choices[0].logprobs.content or ()
    ]
    assert in_stream == told


def test_logprobs_of_text(client: openai.OpenAI, direct: Engine) -> None:
    answer = client.completions.create(model=NAME, prompt="ab", temperature=0, max_tokens=5, logprobs=2, echo=True)
    expected = direct.generate("ab", max_new_tokens=5, logprobs=2, echo=True)
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.tokens is not None
    assert told.tokens[:2] == ["a", "b"]
    assert told.token_logprobs is not None
    assert told.token_logprobs[0] is None
    assert math.isnan(expected.logprobs[0])
    assert told.token_logprobs[1:] == list(expected.logprobs[1:])
    assert told.text_offset is not None
    assert told.text_offset[:3] == [0, 1, 2]
    assert told.top_logprobs is not None
    assert all(len(top) <= 2 for top in told.top_logprobs[1:])
