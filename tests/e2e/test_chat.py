"""Conversations: templates of any kind, tool calls, a full context, and an engine that survives what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish import Engine
from pilotfish.bindings import ContextFullError, InvalidArgumentError
from pilotfish.runtime.conversation import fit_conversation, without_oldest_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from command_line import CommandLine

TEMPLATE = (
    "{% if tools %}{{ tools | map(attribute='function.name') | join(',') }}|{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'critic' %}{{ raise_exception('no role ' + m.role) }}{% endif %}"
    "{{ m.role }}:{{ m.content }}"
    "{% for call in m.tool_calls %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %};"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.fixture(scope="module")
def with_template(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Engine]]:
    """Loads the tiny pair with another chat template."""
    engines: dict[str, Engine] = {}

    def load(template: str) -> Engine:
        if template not in engines:
            bundle = Path(shutil.copytree(tiny_bundle, tmp_path_factory.mktemp("template") / "bundle"))
            manifest = json.loads((bundle / "manifest.json").read_text())
            manifest["chat_template"] = template
            (bundle / "manifest.json").write_text(json.dumps(manifest))
            engines[template] = Engine(bundle, threads=1)
        return engines[template]

    yield load
    for loaded in engines.values():
        loaded.close()


def test_tools_and_tool_calls_go_through_the_template(with_template: Callable[[str], Engine]) -> None:
    engine = with_template(TEMPLATE)
    messages = [
        user("1+2?"),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": "ü"}}}],
        },
        {"role": "tool", "name": "add", "content": "3"},
    ]
    expected = 'add|user:1+2?;assistant:add{"a": 1, "b": "ü"};tool:3;assistant:'
    assert engine.decode(engine.encode_chat(messages, tools=[TOOL])) == expected
    answer = engine.chat(messages, tools=[TOOL], max_new_tokens=5)
    assert answer.token_ids == engine.generate(expected, max_new_tokens=5).token_ids


REFUSED: list[tuple[str, list[dict[str, Any]], str]] = [
    (TEMPLATE, [{"role": "critic", "content": "x"}], "no role critic"),
    ("{{ raise_exception('never') }}", [user("x")], "never"),
    ("{{ messages[0].content + 1 }}", [user("x")], "TypeError"),
    ("{{ messages[9].content.x }}", [user("x")], "refuses"),
    ("{{ 1 // 0 }}", [user("x")], "ZeroDivisionError"),
    ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", [user("x")], "RecursionError"),
    ("{% for i in range(10000000) %}{% endfor %}", [user("x")], "OverflowError"),
    ("{{ ''.__class__.__mro__[1].__subclasses__() }}", [user("x")], "unsafe|refuses"),
    ("{{ namespace.__init__.__globals__ }}", [user("x")], "unsafe|refuses"),
    ("{{ strftime_now.__globals__['json'] }}", [user("x")], "unsafe|refuses"),
    ("{{ ('{0.__class__.__mro__}' | attr('format'))(1) }}", [user("x")], "unsafe|refuses"),
    ("{{ '{0.__class__.__mro__}'.format(1) }}", [user("x")], "unsafe|refuses"),
    ("{{ messages.clear() }}", [user("x")], "unsafe|refuses"),
    ("{{ messages[0].update(role='x') }}", [user("x")], "unsafe|refuses"),
    ("{% set n = namespace(__class__=1) %}", [user("x")], "refuses"),
    ("{% set n = namespace() %}{% set n.__dict__ = 1 %}", [user("x")], "refuses"),
    ("{% include '/etc/passwd' %}", [user("x")], "fails|refuses"),
    ("{{ self._TemplateReference__context.environment.from_string('x') }}", [user("x")], "refuses"),
    ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", [user("x")], "refuses"),
    ("{{ dict.mro() }}", [user("x")], "refuses"),
]


@pytest.mark.parametrize(("template", "messages", "words"), REFUSED)
def test_a_refusal_is_one_error_and_the_engine_goes_on(
    with_template: Callable[[str], Engine], template: str, messages: list[dict[str, Any]], words: str
) -> None:
    engine = with_template(template)
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        engine.chat(messages)
    assert "the chat template" in str(caught.value)
    assert engine.generate("still here", max_new_tokens=3).token_ids
    engine.check()


def test_an_empty_prompt_is_refused(with_template: Callable[[str], Engine]) -> None:
    engine = with_template("{# says nothing #}")
    for ask, words in (
        (lambda: engine.chat([user("x")]), "leaves out the content of message 0"),
        (lambda: engine.generate(""), "prompt"),
        (lambda: engine.generate([]), "prompt"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            ask()
    assert engine.generate("still here", max_new_tokens=3).token_ids


def test_a_prompt_of_exactly_the_context(with_template: Callable[[str], Engine]) -> None:
    engine = with_template(TEMPLATE)
    limit = engine.info.max_context
    shortest = len(engine.encode_chat([user("")]))
    with pytest.raises(ContextFullError, match=str(limit)):
        engine.chat([user("x" * (limit - shortest))])
    answer = engine.chat([user("x" * (limit - shortest - 1))], ignore_eos=True)
    assert (len(answer.token_ids), answer.finish_reason) == (1, "context")


def long_conversation(num_turns: int) -> list[dict[str, Any]]:
    messages = [{"role": "system", "content": "sys"}]
    for turn in range(num_turns):
        messages += [user(f"question {turn} " + "x" * 20), assistant(f"answer {turn}")]
    return [*messages, user("last")]


def test_a_full_context_is_an_error_unless_turns_may_be_dropped(with_template: Callable[[str], Engine]) -> None:
    engine = with_template(TEMPLATE)
    messages = long_conversation(10)
    with pytest.raises(ContextFullError):
        engine.chat(messages)
    answer = engine.chat(messages, when_full="drop_oldest", max_new_tokens=40, ignore_eos=True)
    dropped = answer.num_dropped_messages
    assert dropped % 2 == 0
    assert 0 < dropped < 20
    kept = [messages[0], *messages[1 + dropped :]]
    assert answer.token_ids == engine.chat(kept, max_new_tokens=40, ignore_eos=True).token_ids
    assert len(answer.token_ids) == 40
    one_more = [messages[0], *messages[1 + dropped - 2 :]]
    assert len(engine.encode_chat(one_more)) + 40 > engine.info.max_context
    assert engine.chat(messages[:3] + messages[-1:], when_full="drop_oldest").num_dropped_messages == 0


def test_the_last_turn_is_never_dropped(with_template: Callable[[str], Engine]) -> None:
    engine = with_template(TEMPLATE)
    with pytest.raises(ContextFullError):
        engine.chat([*long_conversation(3), user("x" * 1000)], when_full="drop_oldest")
    with pytest.raises(InvalidArgumentError, match="when_full is 'forget'"):
        engine.chat([user("x")], when_full="forget")


def test_turns_are_dropped_whole() -> None:
    messages = [
        {"role": "system", "content": "s"},
        user("a"),
        {"role": "assistant", "tool_calls": []},
        {"role": "tool", "content": "t"},
        assistant("b"),
        user("c"),
        assistant("d"),
        user("e"),
    ]
    shorter = without_oldest_turn(messages)
    assert shorter == [messages[0], *messages[5:]]
    shortest = without_oldest_turn(shorter)
    assert shortest == [messages[0], messages[7]]
    assert without_oldest_turn(shortest) is None
    assert without_oldest_turn([user("a")]) is None
    assert fit_conversation(messages, lambda kept: [0] * len(kept), 4) == ([0] * 4, 4)


def test_every_turn_reuses_what_was_said(with_template: Callable[[str], Engine]) -> None:
    """Counters of both models: a turn runs its own text, and what the draft had not run of the last answer."""
    engine = with_template(TEMPLATE)
    messages: list[dict[str, Any]] = []
    num_known = 0
    for turn in range(3):
        messages.append(user(f"turn {turn}"))
        num_prompt = len(engine.encode_chat(messages))
        stats = engine.chat(messages, max_new_tokens=6, num_draft_tokens=2, ignore_eos=True).stats
        assert stats.num_prefilled_target == stats.num_prefilled_draft == num_prompt - num_known
        num_known = num_prompt
        messages.append(assistant("ok"))


def test_the_command_forgets_the_oldest_turns(tiny_bundle: Path, cli: CommandLine) -> None:
    lines = "\n".join(f"question {index} " + "x" * 30 for index in range(8))
    finished = cli(
        "chat", tiny_bundle, "--system", "sys", "--drop-oldest", "--max-new-tokens", 4, "--threads", 1, stdin=lines
    )
    assert finished.exit_code == 0
    assert "oldest messages forgotten" in finished.err
    assert "/reset" not in finished.err
