"""Renders a checkpoint's chat template the way transformers does: sandboxed, with its filters and globals."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pilotfish.bindings import BundleCorruptError, InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ChatTemplate:
    """A compiled chat template with the special tokens it may use."""

    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        """Compile ``source``; None stands for a model without a template, which render() refuses."""
        self._special_tokens = dict(special_tokens)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = None if source is None else environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise BundleCorruptError(f"the manifest's chat_template does not compile: {error}") from error

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt for the assistant's next message.

        Raises:
            InvalidArgumentError: a message lacks role or content, or the template refuses the messages.
            UnsupportedError: the bundle has no chat template.
        """
        if self._template is None:
            raise UnsupportedError("the bundle has no chat template: use generate or stream with a prompt of your own")
        for index, entry in enumerate(messages):
            if not {"role", "content"} <= entry.keys():
                raise InvalidArgumentError(f"message {index} has keys {sorted(entry)}, must have role and content")
        if not messages:
            raise InvalidArgumentError("messages is empty, must hold at least one")
        try:
            return self._template.render(
                messages=[dict(entry) for entry in messages], add_generation_prompt=True, **self._special_tokens
            )
        except jinja2.TemplateError as error:
            raise InvalidArgumentError(f"the chat template refuses these messages: {error}") from error


def _to_json(value: object, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes HTML, which a prompt must not.
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(template: str) -> str:
    return datetime.now().astimezone().strftime(template)
