"""Renders a checkpoint's chat template the way transformers does, and refuses what it would lose."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jinja2

from pilotfish.bindings import BundleCorruptError, InvalidArgumentError, UnsupportedError

from .messages import check_all_read, check_messages, check_values, has_none, has_parts, prepared, read_all_parts
from .option_checks import check_sequence, require
from .template_environment import BoundedEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .messages import Fields, Message

MOST_SOURCE = 2**16
"""Characters of a template."""
_OWN_VARIABLES = frozenset(("messages", "tools", "documents", "add_generation_prompt"))


class ChatTemplate:
    """A compiled chat template with the special tokens it may use."""

    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        """Compile ``source``; None stands for a model without a template, which render() refuses."""
        self._special_tokens = dict(special_tokens)
        self._names: frozenset[str] = frozenset()
        self._template: jinja2.Template | None = None
        self._environment = BoundedEnvironment()
        if source is None:
            return
        if len(source) > MOST_SOURCE:
            raise BundleCorruptError(
                f"the manifest's chat_template has {len(source)} characters, more than {MOST_SOURCE}"
            )
        try:
            self._template, self._names = self._environment.compile_template(source)
        except jinja2.TemplateError as error:
            raise BundleCorruptError(f"the manifest's chat_template does not compile: {error}") from error
        except Exception as error:  # the parser and Python's compiler recurse as deep as the template is nested
            reason = f"{type(error).__name__}: {error}"
            raise BundleCorruptError(f"the manifest's chat_template does not compile: {reason}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        marked: Callable[[Message], Message] | None = None,
    ) -> str:
        """The prompt for the assistant's next message.

        Args:
            messages: each has a role, and content or tool_calls; the template sees all of their other keys too. Content
                is a text, or a list of text parts, which are joined unless the template takes them itself.
            tools: JSON schemas of the functions the model may call.
            variables: what else the template may be told, such as enable_thinking.
            marked: what is to be done to each message's texts before the template sees them.

        Raises:
            InvalidArgumentError: a variable that the template does not read or that is set already, a message lacks
                something or has what the template does not read, or the template refuses the messages, fails on them,
                or exceeds the bounds of template_bounds.py.
            UnsupportedError: the bundle has no chat template, or it has no place for tools.
        """
        if self._template is None:
            raise UnsupportedError("the bundle has no chat template: use generate or stream with a prompt of your own")
        lengths = check_messages(messages)
        messages = messages if marked is None else [marked(entry) for entry in messages]
        length = sum(lengths) + (self._check_tools(tools) if tools is not None else 0)
        length += self._check_variables(variables) if variables else 0
        given = {"tools": None if tools is None else [dict(tool) for tool in tools]} | dict(variables or {})
        with self._environment.meters.running(length):
            return self._render(messages, lengths, given)

    def _render(self, messages: Sequence[Message], lengths: Sequence[int], given: Mapping[str, Any]) -> str:
        """With content as it is where the template takes lists of parts, or None; else as a text."""
        if has_parts(messages):
            with contextlib.suppress(InvalidArgumentError):  # it wants texts
                fields = prepared(messages, lengths, joins_parts=False, keeps_none=False)
                text = self._run(messages, fields, given)
                if read_all_parts(fields):
                    return text
        try:
            return self._run(messages, prepared(messages, lengths, joins_parts=True, keeps_none=False), given)
        except InvalidArgumentError:
            if has_none(messages):
                with contextlib.suppress(InvalidArgumentError):  # what it says to texts is the better reason
                    return self._run(messages, prepared(messages, lengths, joins_parts=True, keeps_none=True), given)
            raise

    def _run(self, messages: Sequence[Message], fields: list[Fields], given: Mapping[str, Any]) -> str:
        """The text of messages, of which nothing is lost."""
        variables = {
            "messages": fields,
            "documents": None,
            "add_generation_prompt": True,
        }
        assert self._template is not None  # noqa: S101 - render() saw to it
        try:
            text = self._template.render(variables | dict(given) | self._special_tokens)
        except jinja2.TemplateError as error:
            raise InvalidArgumentError(f"the chat template refuses these messages: {error}") from error
        except Exception as error:  # a template is a program: it may fail in any way, on contents it does not expect
            reason = f"{type(error).__name__}: {error}"
            raise InvalidArgumentError(f"the chat template fails on these messages: {reason:.300}") from error
        check_all_read(messages, fields)
        return text

    def _check_variables(self, variables: Mapping[str, Any]) -> int:
        """How long they are."""
        require("template_variables", variables, isinstance(variables, Mapping), "a mapping of names to values")
        for name in variables:
            require("template_variables", name, isinstance(name, str), "a mapping whose keys are texts")
            if name in _OWN_VARIABLES or name in self._special_tokens:
                raise InvalidArgumentError(f"template_variables has {name!r}, which chat() sets itself")
            if name not in self._names:
                raise InvalidArgumentError(
                    f"template_variables has {name!r}, which the bundle's chat template does not read: leave it out"
                )
        return sum(check_values(f"template variable {name!r}", value) for name, value in variables.items())

    def _check_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """How long they are."""
        check_sequence("tools", tools, "JSON schemas")
        if len(tools) and "tools" not in self._names:
            raise UnsupportedError(
                f"{len(tools)} tools are given, but the bundle's chat template has no place for them: describe them in "
                "a system message, or use a model that was made for tools"
            )
        for tool in tools:
            require("tools", tool, isinstance(tool, Mapping), "JSON schemas of functions, as mappings")
        return sum(check_values(f"tool {index}", tool) for index, tool in enumerate(tools))
