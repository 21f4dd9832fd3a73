"""Thoughts in the answers of the server, as the official client gets them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import openai
import pytest
from serving import NAME, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Qwen 3's way to put old thoughts and the beginning of new ones into the prompt, in short.
TEMPLATE = (
    "{% for message in messages %}{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>"
    "{% endif %}{{ message.content }}\n{% endfor %}{% if begun %}<think>\n{% endif %}"
)
THOUGHT = "<think>\nHm{1,3}\\.\n</think>\n\n"
ASKED: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": "Well?"}],
    "temperature": 0,
    "max_tokens": 120,
}


def bundle_with(template: str, tiny_bundle: Path, folder: Path) -> Path:
    shutil.copytree(tiny_bundle, folder / NAME)
    manifest = folder / NAME / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"chat_template": template}))
    return folder / NAME


@pytest.fixture(scope="module")
def thinker(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A client of a model that thinks."""
    with (
        serving(bundle_with(TEMPLATE, tiny_bundle, tmp_path_factory.mktemp("thinker"))) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def answer(client: openai.OpenAI, **extra: Any) -> tuple[str | None, str | None]:
    """Thoughts and content of the message; a stream says the same."""
    message = client.chat.completions.create(**ASKED, extra_body=extra).choices[0].message
    thoughts, content = "", ""
    for chunk in client.chat.completions.create(**ASKED, extra_body=extra, stream=True):
        delta = chunk.choices[0].delta
        thoughts += getattr(delta, "reasoning_content", None) or ""
        content += delta.content or ""
    whole = getattr(message, "reasoning_content", None)
    assert (whole or "", message.content or "") == (thoughts, content)
    return whole, message.content


def test_thoughts_stand_beside_the_answer(thinker: openai.OpenAI) -> None:
    thoughts, content = answer(thinker, regex=f"{THOUGHT}(Yes|No)\\.")
    assert thoughts is not None
    assert thoughts.startswith("Hm")
    assert content in ("Yes.", "No.")


def test_the_prompt_may_begin_the_thoughts(thinker: openai.OpenAI) -> None:
    begun = {"chat_template_kwargs": {"begun": True}}
    thoughts, content = answer(thinker, regex=r"Hm\.\n</think>\n\nYes\.", **begun)
    assert (thoughts, content) == ("Hm.", "Yes.")


def test_an_answer_without_thoughts(thinker: openai.OpenAI) -> None:
    assert answer(thinker, regex=r"Yes\.") == (None, "Yes.")


def test_the_text_as_it_is(thinker: openai.OpenAI) -> None:
    thoughts, content = answer(thinker, regex=f"{THOUGHT}Yes\\.", reasoning_format="none")
    assert thoughts is None
    assert content is not None
    assert content.startswith("<think>\nHm")
    assert content.endswith("</think>\n\nYes.")


def test_another_format_is_refused(thinker: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="reasoning_format is 'x', must be auto or none"):
        answer(thinker, reasoning_format="x")


@pytest.mark.parametrize("is_read", [True, False])
def test_old_thoughts_go_to_templates_that_read_them(
    tiny_bundle: Path, tmp_path: Path, thinker: openai.OpenAI, *, is_read: bool
) -> None:
    turns: list[Any] = [
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."},
        {"role": "user", "content": "Why?"},
    ]

    def num_prompt_tokens(client: openai.OpenAI, messages: list[Any]) -> int:
        asked = ASKED | {"messages": messages, "max_tokens": 1}
        usage = client.chat.completions.create(**asked).usage
        assert usage is not None
        return usage.prompt_tokens

    without = [{key: value for key, value in turn.items() if key != "reasoning_content"} for turn in turns]
    if is_read:
        assert num_prompt_tokens(thinker, turns) > num_prompt_tokens(thinker, without)
        return
    template = "{% for message in messages %}{{ message.content.split('</think>')[-1] }}\n{% endfor %}"
    with (
        serving(bundle_with(template, tiny_bundle, tmp_path)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        assert num_prompt_tokens(client, turns) == num_prompt_tokens(client, without)
