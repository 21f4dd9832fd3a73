"""Renders a checkpoint's chat template the way transformers does: sandboxed, with its filters, globals and tags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from pilotfish.bindings import BundleCorruptError, InvalidArgumentError, UnsupportedError

from .option_checks import check_sequence, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2.parser import Parser

_THOUGHTS = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """A compiled chat template with the special tokens it may use."""

    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        """Compile ``source``; None stands for a model without a template, which render() refuses."""
        self._special_tokens = dict(special_tokens)
        self._takes_tools = False
        self._template: jinja2.Template | None = None
        if source is None:
            return
        environment = _environment()
        try:
            names = environment.parse(source).find_all(nodes.Name)
            self._takes_tools = any(name.name == "tools" for name in names)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise BundleCorruptError(f"the manifest's chat_template does not compile: {error}") from error

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The prompt for the assistant's next message.

        Args:
            messages: each has a role, and content or tool_calls; the template sees all of their other keys too.
            tools: JSON schemas of the functions the model may call.

        Raises:
            InvalidArgumentError: a message lacks something, or the template refuses the messages or fails on them.
            UnsupportedError: the bundle has no chat template, or it has no place for tools.
        """
        if self._template is None:
            raise UnsupportedError("the bundle has no chat template: use generate or stream with a prompt of your own")
        check_sequence("messages", messages, 'mappings such as {"role": "user", "content": "hi"}')
        if not messages:
            raise InvalidArgumentError("messages is empty, must hold at least one")
        for index, entry in enumerate(messages):
            _check_message(index, entry)
        if tools:
            self._check_tools(tools)
        variables = {
            "messages": [_with_thoughts(entry) for entry in messages],
            "tools": None if tools is None else [dict(tool) for tool in tools],
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return self._template.render(variables | self._special_tokens)
        except jinja2.TemplateError as error:
            raise InvalidArgumentError(f"the chat template refuses these messages: {error}") from error
        except Exception as error:  # a template is a program: it may fail in any way, on contents it does not expect
            reason = f"{type(error).__name__}: {error}"
            raise InvalidArgumentError(f"the chat template fails on these messages: {reason}") from error

    def _check_tools(self, tools: Sequence[Mapping[str, Any]]) -> None:
        if not self._takes_tools:
            raise UnsupportedError(
                f"{len(tools)} tools are given, but the bundle's chat template has no place for them: describe them in "
                "a system message, or use a model that was made for tools"
            )
        check_sequence("tools", tools, "JSON schemas")
        for tool in tools:
            require("tools", tool, isinstance(tool, Mapping), "JSON schemas of functions, as mappings")


def _check_message(index: int, entry: Mapping[str, Any]) -> None:
    if not isinstance(entry, Mapping):
        raise InvalidArgumentError(f"message {index} is {entry!r:.40}, must be a mapping with role and content")
    if "role" not in entry or not entry.keys() & {"content", "tool_calls"}:
        raise InvalidArgumentError(f"message {index} has keys {sorted(entry)}, must have role and content")


def _with_thoughts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A copy in which what the model thought before its answer has every name that templates know it by."""
    message = dict(entry)
    thoughts = next((message[name] for name in _THOUGHTS if message.get(name) is not None), None)
    if thoughts is not None:
        message = {"thinking": thoughts, **message, "reasoning_content": thoughts}
    return message


class _Generation(Extension):
    """``{% generation %}`` marks what the assistant said; for rendering it is a scope like any other."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _PlainNamespace(Namespace):
    """A namespace whose attributes are names, not doors to Python's own."""

    def __init__(*arguments: Any, **attributes: Any) -> None:
        self, *rest = arguments
        for name in (content := dict(*rest, **attributes)):
            _check_name(name)
        Namespace.__init__(self, content)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not have an attribute {name!r}")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["namespace"] = _PlainNamespace
    return environment


def _to_json(value: object, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes HTML, which a prompt must not.
    return json.dumps(value, **({"ensure_ascii": False, "indent": indent} | options))


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(template: str) -> str:
    return datetime.now().astimezone().strftime(template)
