"""The prompt formats of public model families render as written down, and as transformers renders them.

Run as a program it rewrites what is written down.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError

from pilotfish.bindings import InvalidArgumentError, UnsupportedError
from pilotfish.runtime.chat_template import ChatTemplate

FOLDER = Path(__file__).parent.parent / "data" / "chat_templates"
FAMILIES = sorted(path.stem for path in FOLDER.glob("*.jinja"))
# Of families whose template names them.
TOKENS = {
    "command_r": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "deepseek_r1": ("<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
    "gemma2": ("<bos>", "<eos>"),
    "gemma3": ("<bos>", "<eos>"),
    "llama3_1": ("<|begin_of_text|>", "<|eot_id|>"),
    "olmo2": ("<|endoftext|>", "<|endoftext|>"),
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, such as Zürich"},
                "days": {"type": "integer"},
                "parts": {"type": "array", "items": {"type": ["string", "null"]}},
            },
            "required": ["city"],
        },
    },
}
CALL = {
    "id": "abcdef123",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}},
}


def say(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one question": [say("user", "Hello!")],
    "turns": [say("user", "Hello!"), say("assistant", " Hi \n"), say("user", "<b>Wie geht's?</b> \U0001f600\n{{ x }}")],
    "system": [say("system", "Be brief."), say("user", "Hello!"), say("assistant", "Hi"), say("user", "Bye")],
    "thoughts": [
        say("user", "2 + 2?"),
        say("assistant", "<think>\nEasy.\n</think>\n\n4"),
        say("user", "And 3 + 3?"),
        say("assistant", "6", reasoning="Also easy."),
    ],
    "two from the user": [say("user", "Hello!"), say("user", "Anyone?")],
    "a role of its own": [say("critic", "Hello!")],
    "tools": [say("system", "Use tools."), say("user", "Weather in Zürich?")],
    "a tool's answer": [
        say("user", "Weather in Zürich?"),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        say("tool", '{"degrees": 21}', name="get_weather", tool_call_id="abcdef123"),
        say("assistant", "21 degrees."),
        say("user", "Thanks"),
    ],
    "text in parts": [say("user", [{"type": "text", "text": " Look: "}, {"type": "text", "text": "this"}])],
}
WITH_TOOLS = ("tools", "a tool's answer")
# What a template loses where its family is not among these: a message, a call.
LOST = {
    "a role of its own": (
        *("chatml", "command_r", "gemma2", "gemma3", "granite3", "hermes", "llama2", "llama3_1", "mistral", "olmo2"),
        *("phi4", "smollm2", "vicuna"),
    ),
    "a tool's answer": ("deepseek_r1", "granite3", "hermes", "llama3_1", "mistral", "qwen2_5", "qwen3"),
}
TOOL_FAMILIES = ("granite3", "hermes", "llama3_1", "mistral", "qwen2_5", "smollm3")


def variables(family: str) -> dict[str, str]:
    bos, eos = TOKENS.get(family, ("<s>", "</s>"))
    return {"bos_token": bos, "eos_token": eos, "pad_token": ""}


def by_transformers(family: str, name: str) -> str | None:
    """None where the template refuses the conversation or fails on it, or would lose some of it.

    Lists of parts are given joined to a template that shows them as Python does, or fails on them.
    """
    if name in LOST and family not in LOST[name]:
        return None
    rendered = render_by_transformers(family, CONVERSATIONS[name], with_tools=name in WITH_TOOLS)
    if name == "text in parts" and (rendered is None or "[{" in rendered):
        return render_by_transformers(family, [say("user", " Look: this")], with_tools=False)
    return rendered


def render_by_transformers(family: str, conversation: list[dict[str, Any]], *, with_tools: bool) -> str | None:
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        rendered, _ = render_jinja_template(
            [conversation],
            tools=[WEATHER] if with_tools else None,
            chat_template=(FOLDER / f"{family}.jinja").read_text(),
            add_generation_prompt=True,
            **variables(family),
        )
    except (TemplateError, TypeError):
        return None
    return str(rendered[0])


def by_pilotfish(family: str, name: str) -> str | None:
    """Where transformers ignores tools that the template has no place for, they are refused, and then left out."""
    template = ChatTemplate((FOLDER / f"{family}.jinja").read_text(), variables(family))
    tools = [WEATHER] if name in WITH_TOOLS else None
    if tools and family not in TOOL_FAMILIES:
        with pytest.raises(UnsupportedError, match="1 tools are given, but the bundle's chat template has no place"):
            template.render(CONVERSATIONS[name], tools)
        tools = None
    try:
        return template.render(CONVERSATIONS[name], tools)
    except InvalidArgumentError as error:
        assert "chat template" in str(error)  # noqa: PT017 - the value counts, raised or not
        return None


@pytest.mark.parametrize("family", FAMILIES)
def test_it_renders_as_written_down(family: str) -> None:
    expected = json.loads((FOLDER / "expected.json").read_text())[family]
    assert expected.keys() == CONVERSATIONS.keys()
    assert {name: by_pilotfish(family, name) for name in CONVERSATIONS} == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_it_renders_as_in_transformers(family: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    for name in CONVERSATIONS:
        assert by_pilotfish(family, name) == by_transformers(family, name), name


def test_there_are_enough_families_and_each_answers_a_question() -> None:
    expected = json.loads((FOLDER / "expected.json").read_text())
    assert len(expected) >= 12
    assert all("Hello!" in cases["one question"] for cases in expected.values())
    assert sum(cases["two from the user"] is None for cases in expected.values()) >= 4
    assert sum("21" in (cases["a tool's answer"] or "") for cases in expected.values()) >= 5


if __name__ == "__main__":
    renderings = {family: {name: by_transformers(family, name) for name in CONVERSATIONS} for family in FAMILIES}
    (FOLDER / "expected.json").write_text(json.dumps(renderings, indent=1, ensure_ascii=False) + "\n")
