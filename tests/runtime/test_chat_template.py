"""Chat templates render as in transformers, and cannot reach outside their sandbox."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.bindings import BundleCorruptError, InvalidArgumentError, UnsupportedError
from pilotfish.runtime.chat_template import ChatTemplate

CHATML = """{% for message in messages %}
{% if loop.first and messages[0]['role'] != 'system' %}
{{ bos_token }}system
Be brief.{{ eos_token }}
{% endif %}
{{ bos_token + message['role'] }}
{{ message['content'] + eos_token }}
{% endfor %}
{% if add_generation_prompt %}
{{ bos_token }}assistant
{% endif %}"""
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": ""}
USER = [{"role": "user", "content": "<b>hi</b>"}]


def test_blocks_leave_no_blank_lines_and_nothing_is_escaped() -> None:
    rendered = ChatTemplate(CHATML, TOKENS).render(USER)
    assert rendered == "<s>system\nBe brief.</s>\n<s>user\n<b>hi</b></s>\n<s>assistant\n"


def test_it_is_what_transformers_renders() -> None:
    utilities = pytest.importorskip("transformers.utils.chat_template_utils", reason="transformers is not installed")
    conversation = [*USER, {"role": "assistant", "content": "ü {{ 1 }}"}, {"role": "user", "content": "{}"}]
    rendered, _ = utilities.render_jinja_template(
        [conversation], chat_template=CHATML, add_generation_prompt=True, **TOKENS
    )
    assert ChatTemplate(CHATML, TOKENS).render(conversation) == rendered[0]


def test_tojson_keeps_html_and_letters() -> None:
    assert (
        ChatTemplate("{{ messages[0].content | tojson }}", {}).render([{"role": "user", "content": "<é>"}]) == '"<é>"'
    )


def test_loop_controls_and_the_date_are_there() -> None:
    template = "{% for m in messages %}{{ strftime_now('%Y') | length }}{{ m.content }}{% break %}x{% endfor %}"
    assert ChatTemplate(template, {}).render(USER) == "4<b>hi</b>"


def test_a_template_may_refuse_messages() -> None:
    with pytest.raises(InvalidArgumentError, match="roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}", {}).render(USER)


@pytest.mark.parametrize("attack", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_the_sandbox_holds(attack: str) -> None:
    with pytest.raises(InvalidArgumentError, match="refuses these messages"):
        ChatTemplate(attack + "{{ ''.__class__.__mro__[1].__subclasses__() }}", {}).render(USER)


@pytest.mark.parametrize("messages", [[], [{"role": "user"}], [{"content": "x"}], "hi", USER[0], ["hi"], None])
def test_malformed_messages_are_refused(messages: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must (hold|have|be)"):
        ChatTemplate(CHATML, TOKENS).render(messages)


@pytest.mark.parametrize("tools", ["add", {"name": "add"}, ["add"]])
def test_malformed_tools_are_refused(tools: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"tools is .*, must be .*JSON schemas"):
        ChatTemplate("{% for tool in tools %}{{ tool.name }}{% endfor %}", {}).render(USER, tools)


def test_a_bundle_without_template_says_what_to_do() -> None:
    with pytest.raises(UnsupportedError, match="use generate or stream"):
        ChatTemplate(None, TOKENS).render(USER)


def test_a_template_that_does_not_compile_is_a_corrupt_bundle() -> None:
    with pytest.raises(BundleCorruptError, match="does not compile"):
        ChatTemplate("{% for %}", {})


CALLS = [{"function": {"name": "add", "arguments": {"a": 1}}}]
TOOLS = (
    "{% for m in messages %}[{{ m.role }} {{ m.content }}"
    "{% for c in m.tool_calls %} {{ c.function.name }}{% endfor %}]{% endfor %}"
)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "assistant", "content": "", "tool_calls": CALLS}, r"message 1 \(assistant\) has tool_calls"),
        ({"role": "assistant", "content": None, "tool_calls": CALLS}, r"message 1 \(assistant\) has tool_calls"),
        ({"role": "user", "content": "x", "name": "Ann"}, r"message 1 \(user\) has name"),
        ({"role": "user", "content": None}, "content of message 1 is None, must be a text"),
        ({"role": "user", "content": 3}, "content of message 1 is 3"),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, "content of message 1 is"),
        ({"role": "user", "content": [{"type": "image", "url": "x"}]}, "part 0 of message 1 is of type 'image'"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}, "part 1 of message 1 is 'b'"),
        ({"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}, "part 0 of message 1 has .*x.* beside"),
        ({"role": 3, "content": "x"}, "message 1 has the role 3"),
        ({"role": "user", "content": "x", 4: 5}, "message 1 has the key 4"),
        ({"role": "user", "content": "ab\ud800"}, r"character 2 of content of message 1 is '\\ud800'"),
    ],
)
def test_what_a_message_would_lose_is_refused_by_its_index(message: dict[Any, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        ChatTemplate(CHATML, TOKENS).render([*USER, message])


def test_nested_values_are_bounded() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": deep}}]}
    with pytest.raises(InvalidArgumentError, match="tool_calls of message 0 is nested deeper than"):
        ChatTemplate(TOOLS, {}).render([message])
    with pytest.raises(InvalidArgumentError, match="tool 0 is nested deeper than"):
        ChatTemplate("{{ tools }}", {}).render(USER, [{"deep": deep}])


def test_text_parts_are_one_text_and_calls_need_no_content() -> None:
    said = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]},
        {"role": "assistant", "content": None, "tool_calls": CALLS, "refusal": None, "audio": []},
        {"role": "tool", "content": "3", "tool_call_id": "7", "name": "add"},
    ]
    assert ChatTemplate(TOOLS, {}).render(said) == "[user a b][assistant  add][tool 3]"
    del said[1]["content"]
    assert ChatTemplate(TOOLS, {}).render(said) == "[user a b][assistant  add][tool 3]"
