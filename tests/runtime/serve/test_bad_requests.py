"""What is wrong with a request is said in one sentence, in the protocol's error object, and the server goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from serving import NAME, ask, serving

if TYPE_CHECKING:
    from pilotfish import Engine

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": MESSAGES, "max_tokens": 3} | fields


def text(**fields: Any) -> dict[str, Any]:
    return {"model": NAME, "prompt": "hi", "max_tokens": 3} | fields


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b"", "the body is not JSON: Expecting value", "invalid_json"),
        (b'{"model":', "the body is not JSON: Expecting value", "invalid_json"),
        (b"[1]", "the body is [1], must be a JSON object", "invalid_json"),
        (b'{"model": "\xff"}', "the body is not UTF-8: byte 11 is invalid start byte", "invalid_utf8"),
        (b'{"temperature": NaN}', "the body is not JSON: NaN is no number of JSON", "invalid_json"),
        (b"[" * 200_000, "the body is nested too deep for JSON of a request", "invalid_json"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "the body is not JSON: Exceeds the limit", "invalid_json"),
    ],
    ids=["empty", "cut short", "a list", "bytes", "NaN", "nested", "digits"],
)
def test_bodies_that_are_no_requests(address: str, body: bytes, message: str, code: str) -> None:
    for path in (CHAT, TEXT):
        answer = ask(address, path, body)
        assert answer.status == 400
        assert answer.error["message"].startswith(message)
        assert (answer.error["code"], answer.error["type"]) == (code, "invalid_request_error")


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"model": NAME}, "messages is missing, must be a list of messages", "messages"),
        (chat(messages="hi"), "messages is 'hi', must be a list", "messages"),
        (chat(messages=[]), "messages is empty, must hold at least one", None),
        (chat(messages=[3]), "message 0 is 3, must be a mapping with role and content", None),
        (chat(messages=[{"role": "user"}]), "message 0 has keys ['role'], must have role and content", None),
        (
            chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
            "part 0 of message 0 is of type 'image_url', must be ",
            None,
        ),
        (chat(messages=[{"role": "user", "content": "\ud800"}]), "character 0 of content of message 0 is ", None),
        (chat(model=3), "model is 3, must be a text", "model"),
        (chat(temperature="hot"), "temperature is 'hot', must be 0 (greedy) to 100", None),
        (chat(temperature=-1), "temperature is -1, must be 0 (greedy) to 100", None),
        (chat(top_p=0), "top_p is 0, must be in (0, 1]", None),
        (chat(presence_penalty=True), "presence_penalty is True, must be in [-100, 100]", None),
        (chat(max_tokens=0), "max_tokens is 0, must be an integer in 1..4194304", "max_tokens"),
        (
            chat(max_completion_tokens="9"),
            "max_completion_tokens is '9', must be an integer in",
            "max_completion_tokens",
        ),
        (chat(n=129), "n is 129, must be an integer in 1..128", "n"),
        (chat(seed=2**64), f"seed is {2**64}, must be an integer in", "seed"),
        (chat(stop=[""]), "stop is '', must be non-empty strings", None),
        (chat(stop={}), "stop is {}, must be a string or a sequence of strings", None),
        (chat(stream="yes"), "stream is 'yes', must be true or false", "stream"),
        (chat(stream=False, stream_options={}), "stream_options are given, but stream is not true", "stream_options"),
        (
            chat(stream=True, stream_options={"usage": 1}),
            "'stream_options.usage' is not a field",
            "stream_options.usage",
        ),
        (chat(logit_bias={"a": 1}), "logit_bias has the key 'a', must have token ids as keys", "logit_bias"),
        (chat(logit_bias={"1": "x"}), "logit_bias of id 1 is 'x', must be a number or -inf", None),
        (chat(top_logprobs=1), "top_logprobs is 1, but logprobs is not true", "top_logprobs"),
        (chat(logprobs=True, top_logprobs=21), "top_logprobs is 21, must be an integer in 0..20", "top_logprobs"),
        (chat(frobnicate=1), "'frobnicate' is not a field that this server knows: leave it out", "frobnicate"),
        (chat(functions=[]), "'functions' is not a field that this server knows", "functions"),
        (chat(modalities=["audio"]), "modalities is ['audio'], must be [\"text\"]", "modalities"),
        (
            chat(response_format={"type": "xml"}),
            "response_format.type is 'xml', must be text, ",
            "response_format.type",
        ),
        (chat(response_format=3), "response_format is 3, must be an object", "response_format"),
        (
            chat(response_format={"type": "json_schema"}),
            "response_format.json_schema is None, must be an object with name and schema",
            "response_format.json_schema",
        ),
        (
            chat(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}),
            "json_schema cannot be used: ",
            None,
        ),
        (
            chat(response_format={"type": "json_schema", "json_schema": {"schema": {"enum": []}}}),
            "json_schema cannot be used: ",
            None,
        ),
        (chat(tools=[3]), "tools[0] is 3, must be an object", "tools[0]"),
        (chat(tools=[{"type": "search"}]), "tools[0].type is 'search', must be \"function\"", "tools[0].type"),
        (chat(tools=[TOOL, TOOL]), "tools names one function twice", "tools"),
        (
            chat(tools=[TOOL], tool_choice="some"),
            "tool_choice is 'some', must be auto, none, required or",
            "tool_choice",
        ),
        (chat(tool_choice="required"), "tool_choice asks for a function, which tools does not have", "tool_choice"),
        (
            chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}),
            "tool_choice asks for 'g', which tools does not have",
            "tool_choice",
        ),
        (
            chat(tools=[TOOL], tool_choice="required", response_format={"type": "json_object"}),
            "response_format asks for JSON, but tool_choice for a call",
            "tool_choice",
        ),
        (
            chat(
                messages=[
                    *MESSAGES,
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "3"}}]},
                ]
            ),
            "messages[1].tool_calls[0].function.arguments is '3', must be the text of a JSON object",
            "messages[1].tool_calls[0]",
        ),
        (
            chat(messages=[*MESSAGES, {"role": "assistant", "tool_calls": ["f"]}]),
            "messages[1].tool_calls[0] is 'f', must be a call with a function's name and arguments",
            "messages[1].tool_calls[0]",
        ),
        (
            chat(chat_template_kwargs={"x": 1}),
            "template_variables has 'x', which the bundle's chat template does not",
            None,
        ),
        (chat(source="heads"), "source is 'heads', must be auto, plain", None),
        (chat(source="head"), "source is 'head', but the bundle has no head", None),
    ],
)
def test_chats_that_are_refused(address: str, body: dict[str, Any], message: str, param: str | None) -> None:
    check_refused(address, CHAT, body, message, param)


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"model": NAME}, "prompt is None, must be a text, token ids, or a list", "prompt"),
        (text(prompt=[]), "prompt is [], must be a text, token ids, or a list", "prompt"),
        (text(prompt=["a", 1]), "prompt is ['a', 1], must be a text, token ids, or a list", "prompt"),
        (text(prompt=[1, 10**9]), "token 1 has the id 1000000000, must be in 0..", None),
        (text(prompt=""), "the prompt is empty, must be a non-empty text", None),
        (text(prompt=["a"] * 65, n=2), "prompt has 65 prompts and n is 2, must be at most 128 together", "prompt"),
        (text(best_of=2), "best_of is 2, must be n, 1: all choices are returned", "best_of"),
        (text(suffix="x"), "suffix is 'x', must be left out", "suffix"),
        (text(logprobs=21), "logprobs is 21, must be an integer in 0..20", "logprobs"),
        (text(logprobs=True), "logprobs is True, must be an integer in 0..20", "logprobs"),
        (text(echo=1), "echo is 1, must be true or false", "echo"),
        (text(regex="("), "regex cannot be used: ", None),
        (text(messages=MESSAGES), "'messages' is not a field that this server knows", "messages"),
    ],
)
def test_texts_that_are_refused(address: str, body: dict[str, Any], message: str, param: str | None) -> None:
    check_refused(address, TEXT, body, message, param)


def check_refused(address: str, path: str, body: dict[str, Any], message: str, param: str | None) -> None:
    for is_streamed in (False, True):
        asked = {"stream": is_streamed, **body}
        answer = ask(address, path, json.dumps(asked).encode())
        assert answer.status == 400, answer.body
        assert answer.error["message"].startswith(message)
        assert answer.error["param"] == param
        assert answer.headers["content-type"] == "application/json"


def test_a_prompt_that_is_too_long(client: openai.OpenAI, direct: Engine) -> None:
    with pytest.raises(openai.BadRequestError, match="the prompt has 256 tokens, the context holds 256") as caught:
        client.completions.create(model=NAME, prompt="x" * direct.info.max_context)
    assert caught.value.code == "context_length_exceeded"


def test_a_model_that_is_not_there(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="model is 'other', must be one of tiny") as caught:
        client.completions.create(model="other", prompt="hi")
    assert caught.value.code == "model_not_found"


def test_half_a_surrogate_pair_is_said_back(address: str) -> None:
    answer = ask(address, TEXT, text(model="\ud800"))
    assert (answer.status, answer.error["message"]) == (404, r"model is '\ud800', must be one of tiny")


def test_the_only_model_need_not_be_named(address: str) -> None:
    assert ask(address, TEXT, {"prompt": "hi", "max_tokens": 1}).content["model"] == NAME


def test_tools_for_a_template_without_a_place_for_them(tiny_bundle: Any) -> None:
    with serving(tiny_bundle) as plain:
        for choice, message in (
            ("auto", "tool_choice is auto, but the bundle's chat template has no form of calls"),
            ("required", "1 tools are given, but the bundle's chat template has no place for them"),
        ):
            answer = ask(plain, CHAT, chat(tools=[TOOL], tool_choice=choice))
            assert answer.status == 400
            assert answer.error["message"].startswith(message)
            assert answer.error["code"] == "unsupported"


def test_embeddings_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="the models that are served generate text") as caught:
        client.embeddings.create(model=NAME, input="hi")
    assert caught.value.code == "unsupported"


def test_paths_and_methods_that_are_not_there(address: str) -> None:
    answer = ask(address, "/v1/frobnicate")
    assert (answer.status, answer.error["code"]) == (404, "unknown_path")
    assert answer.error["message"].startswith("GET /v1/frobnicate: Not Found")
    answer = ask(address, CHAT)
    assert (answer.status, answer.error["message"][:39]) == (405, "GET /v1/chat/completions: Method Not All"[:39])


def test_a_developer_is_a_system_where_the_template_knows_none(client: openai.OpenAI, direct: Engine) -> None:
    messages: list[Any] = [{"role": "developer", "content": "Be brief."}, *MESSAGES]
    answer = client.chat.completions.create(model=NAME, messages=messages, temperature=0, max_tokens=9)
    expected = direct.chat([{"role": "system", "content": "Be brief."}, *MESSAGES], max_new_tokens=9)
    assert answer.choices[0].message.content == expected.text
