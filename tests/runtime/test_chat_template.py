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
    template = "{% for m in messages %}{{ strftime_now('%Y') | length }}{% break %}{% endfor %}"
    assert ChatTemplate(template, {}).render(USER * 2) == "4"


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
