"""A chat template comes with a bundle: whatever it asks for, it ends soon, takes little memory, and Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pilotfish.bindings import BundleCorruptError, InvalidArgumentError, PilotfishError
from pilotfish.runtime import template_bounds
from pilotfish.runtime.chat_template import ChatTemplate

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
DOUBLED = "{% set x = 'ab' %}" + "{% set x = x OPERATION x %}" * 60 + "{{ x }}"
NESTED = "{% set x = [1] %}" + "{% set x = LITERAL %}" * 60
HOSTILE = {
    "nested ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "nested ranges with loop": "{% for i in range(9**5) %}{% for j in range(9**5) %}{{ loop.index }}{% endfor %}"
    "{% endfor %}",
    "recursive loop": "{% for i in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "block": "{% set ns = namespace(n=0) %}{% block a %}{% for i in range(9) %}{{ self.a() }}"
    "{% endfor %}{% endblock %}",
    "doubling by +": DOUBLED.replace("OPERATION", "+"),
    "doubling by ~": DOUBLED.replace("OPERATION", "~"),
    "doubling blocks": "{% set x = 'ab' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60 + "{{ x }}",
    "doubling macros": "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{% set x = 'ab' %}" + "{% set x = f(x) %}" * 60,
    "doubling lists": "{% set x = [1] %}" + "{% set x = x + x %}" * 60,
    "lists of lists": NESTED.replace("LITERAL", "[x, x]") + "{{ x }}",
    "lists of lists as JSON": NESTED.replace("LITERAL", "[x, x]") + "{{ x | tojson }}",
    "tuples of tuples": NESTED.replace("LITERAL", "(x, x)") + "{{ {x: 1} }}",
    "mappings of mappings": NESTED.replace("LITERAL", "{'a': x, 'b': x}") + "{{ x }}",
    "calls of dict": NESTED.replace("LITERAL", "dict(a=x, b=x)") + "{{ x | string | length }}",
    "namespaces": NESTED.replace("LITERAL", "namespace(a=x, b=x)") + "{{ x }}" * 9 + "{{ x | tojson }}",
    "deep lists": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
    "{% endfor %}{{ ns.x }}",
    "* of texts": "{{ 'a' * 10**9 }}",
    "* of lists": "{{ [messages] * 10**8 }}",
    "* of a mark": "{{ ('a' | safe) * 10**9 }}",
    "**": "{{ 9 ** (9 ** 9) }}",
    "* of numbers": "{% set x = 9 %}" + "{% set x = x * x %}" * 60 + "{{ x }}",
    "% to a width": "{{ '%1000000000d' % 1 }}",
    "% to a given width": "{{ '%*d' % (1000000000, 1) }}",
    "filter format": "{{ '%1000000000d' | format(1) }}",
    "format to a width": "{{ '{:1000000000d}'.format(1) }}",
    "format to a given width": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format_map to a width": "{{ '{a:1000000000d}'.format_map({'a': 1}) }}",
    "center": "{{ 'a' | center(10**9) }}",
    "indent": "{{ ('a\n' * 10**5) | indent(10**9) }}",
    "indent by a text": "{{ 'a\nb\nc' | indent('a' * 2000000) }}",
    "join": "{{ range(99999) | join('a' * 10**6) }}",
    "method join": "{% set x = ['a' * 1000] * 9999 %}{{ ('a' * 10**6).join(x) }}",
    "replace": "{{ ('a' * 10**6) | replace('a', 'a' * 10**6) }}",
    "method replace": "{{ ('a' * 10**6).replace('a', 'a' * 10**6) }}",
    "replace of nothing": "{{ ('a' * 10**6) | replace('', 'a' * 10**6) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "to_bytes": "{{ (1).to_bytes(10**9) }}",
    "tojson indent": "{{ messages | tojson(indent=10**9) }}",
    "tojson separators": "{{ messages | tojson(separators=('a' * 10**6, 'b' * 10**6)) }}",
    "tojson default": "{{ messages | tojson(default=raise_exception) }}",
    "tojson cls": "{{ messages | tojson(cls=dict) }}",
    "round": "{{ 1 | round(10**9, 'ceil') }}",
    "sum of lists": "{{ ([messages] * 9999) | sum(start=[]) }}",
    "lipsum": "{{ lipsum(n=10**6) }}",
    "batch": "{{ 'a' | batch(10**9, 'b') | list }}",
    "strftime_now": "{{ strftime_now('%Y' * 10**7) }}",
    "strftime_now of Python's own length": "{{ strftime_now('%Y' * 9999) }}",
    "strftime_now to a width": "{{ strftime_now('%1000000000d') }}",
    "map": "{{ range(99999) | map('center', 999) | list | join | length }}" * 50,
    "slices": "{% set x = 'a' * 2000000 %}" + "{% set y = y ~ x[1:] %}" * 300,
    "searches": "{% set x = 'a' * 2000000 %}{% set y = x ~ 'b' %}" + "{{ 'aaaaaaaab' in x or y in x }}" * 300,
    "kept texts": "{% set ns = namespace(x=[]) %}{% set y = 'a' * 2000000 %}{% for i in range(99999) %}"
    "{% set ns.x = ns.x + [y ~ i] %}{% endfor %}",
    "pop": "{{ messages.pop() }}",
    "nesting": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nested blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "expressions": "{{ 1 }}" * 9000,
    "size": "a" * (2**16 + 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_asks_for_too_much_is_refused_soon(name: str) -> None:
    begin = time.monotonic()
    with pytest.raises((InvalidArgumentError, BundleCorruptError), match=r"chat.?template"):
        ChatTemplate(HOSTILE[name], {}).render(HELLO)
    assert time.monotonic() - begin < 8  # 2 alone; other tests slow it down


@pytest.mark.parametrize("name", ["kept texts", "doubling blocks", "join", "lists of lists", "calls of dict"])
def test_what_asks_for_too_much_gets_no_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgumentError):
            ChatTemplate(HOSTILE[name], {}).render(HELLO)
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()


def test_ctrl_c_ends_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_bounds, "MOST_SECONDS", 600.0)  # a busy machine may wake the timer late
    monkeypatch.setattr(template_bounds, "MOST_STEPS", 10**12)
    template = ChatTemplate(HOSTILE["nested ranges"], {})
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            template.render(HELLO)
    finally:
        signal.signal(signal.SIGINT, before)
    timer.join()


def test_one_threads_bounds_are_not_anothers() -> None:
    slow = ChatTemplate(HOSTILE["nested ranges"], {})
    quick = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", {})

    def run() -> None:
        with pytest.raises(PilotfishError):
            slow.render(HELLO)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        assert quick.render(HELLO) == "hi"
    thread.join()


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "é"}'),
        ("{{ messages[0] | tojson(ensure_ascii=true) }}", '{"role": "user", "content": "\\u00e9"}'),
        ("{{ messages[0] | tojson(sort_keys=true, separators=(',', ':')) }}", '{"content":"é","role":"user"}'),
        ("{{ messages[0] | tojson(indent=1) }}", '{\n "role": "user",\n "content": "é"\n}'),
        ("{{ '%5.1f|%s' | format(1.25, messages[0].content) }}", "  1.2|é"),
        ("{{ '%s %d' % (messages[0].content, 3) }}", "é 3"),
        ("{{ '{:>4}'.format(messages[0].content) }}", "   é"),
        ("{{ [1, 2] + [messages[0].content] }}", "[1, 2, 'é']"),
        ("{{ 1 + 2 + 3.5 }}{{ messages[0]['content'] ~ 1 ~ none }}", "6.5é1None"),
        ("{{ ['b', messages[0].content] | join('-') }}{{ '-'.join(['a', 'b']) }}", "b-éa-b"),
        ("{{ messages | map(attribute='content') | join(', ') }}{{ messages | join('|', 'content') }}", "éé"),
        ("{{ ('a\nb' ~ messages[0].content) | indent(2, true) }}", "  a\n  bé"),
        ("{{ [1, 2, 3] | sum }}{{ messages[0].content | replace('é', 'e') | upper }}", "6E"),
        ("{{ messages[0].content * 3 }}{{ 2 ** 10 }}{{ 7 % 4 }}", "ééé10243"),
        ("{{ dict(a=messages[0].content) }}{{ 2.567 | round(1) }}{{ 3 | round }}", "{'a': 'é'}2.63"),
        ("{% for x in [[1, [2]], 3] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", None),
        ("{% for k, v in messages[0].items() %}{{ k }}={{ v }} {% endfor %}{{ loop }}", "role=user content=é "),
        ("{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ m.content }}{% endfor %}", "1/1é"),
    ],
)
def test_what_templates_do_they_do_as_before(template: str, text: str | None) -> None:
    said = [{"role": "user", "content": "é"}]
    if text is None:
        with pytest.raises(InvalidArgumentError, match="leaves out the content of message 0"):
            ChatTemplate(template, {}).render(said)
    else:
        assert ChatTemplate(template, {}).render(said) == text


def test_long_conversations_are_not_too_long() -> None:
    quadratic = (
        "{% set ns = namespace(t='') %}{% for m in messages %}{% set rest = messages[loop.index0:] | list %}"
        "{% set ns.t = ns.t + m.role + m.content + rest | length | string %}{% endfor %}{{ ns.t }}"
    )
    said = [{"role": "user", "content": "word " * 200} for _ in range(300)]
    assert len(ChatTemplate(quadratic, {}).render(said)) > 300_000
    folder = Path(__file__).parent.parent / "data" / "chat_templates"
    text = "x" * 2_000_000
    rendered = ChatTemplate((folder / "qwen2_5.jinja").read_text(), {}).render([{"role": "user", "content": text}] * 5)
    assert rendered.count(text) == 5
