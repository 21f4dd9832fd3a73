"""A request of /v1/chat/completions: its fields, and what they ask of the engine."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from pilotfish.bindings import limits
from pilotfish.runtime.option_checks import shown
from pilotfish.runtime.tool_calls import WHOLE, ToolCallForm, called_schema

from .asked import IGNORED, Asked, common_fields
from .errors import invalid
from .fields import Fields, parse_object

MOST_TOP_LOGPROBS = 20
MOST_TOOLS = 128
_ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Tools:
    """Functions that the model may call."""

    given: list[dict[str, Any]]
    """As the protocol has them, for the template."""
    names: tuple[str, ...]
    """Of those that may be called."""
    is_forced: bool
    """Whether the answer has to be a call."""
    is_single: bool
    """Whether there may be one call alone."""


@dataclass(slots=True)
class ChatRequest:
    """A conversation to answer."""

    asked: Asked
    messages: list[Any]
    tools: Tools | None
    template_variables: dict[str, Any]
    has_logprobs: bool
    splits_reasoning: bool
    has_begun_reasoning: bool = False
    """Whether the prompt ends with the mark that begins thoughts; known once it is rendered."""

    def form(self, of_model: ToolCallForm | None) -> ToolCallForm | None:
        """The form of calls in the answer; None: it is text whatever it has.

        Raises:
            ApiError: the model's form is not known.
        """
        if self.tools is None or self.tools.is_forced:
            return WHOLE if self.tools else None
        if of_model is None:
            raise invalid(
                "tool_choice is auto, but the bundle's chat template has no form of calls that this server knows: "
                'set tool_choice to "required" or to a function, which makes the answer a call of a form of its own',
                param="tool_choice",
                code="unsupported",
            )
        return of_model


def read_chat(body: bytes) -> ChatRequest:
    """Read a request.

    Raises:
        ApiError: what is wrong with it, by its field.
    """
    fields = Fields(parse_object(body))
    asked = common_fields(
        fields, default_tokens=limits.MOST_CONTEXT, length_names=("max_completion_tokens", "max_tokens")
    )
    messages = fields.objects("messages")
    if messages is None:
        raise invalid("messages is missing, must be a list of messages", param="messages")
    tools, tools_ignored = _tools(fields)
    options = asked.options | _schema_option(fields, tools) | _logprobs(fields)
    modalities = fields.objects("modalities")
    if modalities not in (None, ["text"]):
        raise fields.refusal("modalities", modalities, '["text"]')
    request = ChatRequest(
        asked=dataclasses.replace(asked, options=options),
        messages=[_as_template_wants(index, message) for index, message in enumerate(messages)],
        tools=tools,
        template_variables=fields.mapping("chat_template_kwargs") or {},
        has_logprobs=options.pop("has_logprobs"),
        splits_reasoning=_splits_reasoning(fields),
    )
    ignored = (*fields.finish(IGNORED), *tools_ignored)
    return dataclasses.replace(request, asked=dataclasses.replace(request.asked, ignored=ignored))


def _splits_reasoning(fields: Fields) -> bool:
    """Whether thoughts are a field of their own, as they are unless the request wants the text as it is."""
    wanted = fields.take("reasoning_format")
    if wanted not in (None, "auto", "none"):
        raise fields.refusal("reasoning_format", wanted, "auto or none")
    return bool(wanted != "none")


def _logprobs(fields: Fields) -> dict[str, Any]:
    has_logprobs = fields.flag("logprobs")
    number = fields.integer("top_logprobs", 0, MOST_TOP_LOGPROBS)
    if number is not None and not has_logprobs:
        raise invalid(f"top_logprobs is {number}, but logprobs is not true", param="top_logprobs")
    return {"has_logprobs": has_logprobs, "logprobs": number or 0}


def _schema_option(fields: Fields, tools: Tools | None) -> dict[str, Any]:
    """The schema that response_format or a forced call asks for."""
    content = fields.take("response_format")
    schema = None if content is None else _response_schema(Fields(content, "response_format"))
    if tools is None or not tools.is_forced:
        return {} if schema is None else {"json_schema": schema}
    if schema is not None:
        raise invalid("response_format asks for JSON, but tool_choice for a call: leave one out", param="tool_choice")
    functions = [tool["function"] for tool in tools.given if tool["function"]["name"] in tools.names]
    return {"json_schema": called_schema(functions)}


def _response_schema(fields: Fields) -> Any:
    kind = fields.text("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise fields.refusal("type", kind, "text, json_object or json_schema")
    described = fields.mapping("json_schema")
    fields.finish()
    if kind != "json_schema":
        if described is not None:
            raise fields.refusal("type", kind, "json_schema where there is a json_schema")
        return _ANY_OBJECT if kind == "json_object" else None
    if described is None or not isinstance(described.get("schema"), dict):
        raise fields.refusal("json_schema", described, "an object with name and schema")
    inner = Fields(described, "response_format.json_schema")
    schema = inner.take("schema")
    inner.text("name")
    inner.text("description")
    inner.flag("strict")  # every schema is followed strictly
    inner.finish()
    return schema


def _tools(fields: Fields) -> tuple[Tools | None, list[str]]:
    """The tools, None where none may be called; and what is said about them that changes nothing."""
    given = fields.objects("tools") or []
    choice = fields.take("tool_choice")
    parallel = fields.take("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise fields.refusal("parallel_tool_calls", parallel, "true or false")
    if len(given) > MOST_TOOLS:
        raise invalid(f"tools has {len(given)} entries, must have at most {MOST_TOOLS}", param="tools")
    names = [_tool_name(index, tool) for index, tool in enumerate(given)]
    if len(set(names)) < len(names):
        raise invalid(f"tools names one function twice: {sorted(names)}", param="tools")
    chosen, is_forced = _chosen(choice, names)
    if not chosen:
        return None, []
    tools = Tools(given, tuple(chosen), is_forced, is_single=parallel is False)
    is_strict = any(tool["function"].get("strict") for tool in given)
    return tools, ["tools.function.strict"] if is_strict and not is_forced else []


def _tool_name(index: int, tool: object) -> str:
    place = f"tools[{index}]"
    fields = Fields(tool, place)
    kind = fields.take("type")
    if kind != "function":
        raise fields.refusal("type", kind, '"function"')
    function = Fields(fields.take("function"), f"{place}.function")
    fields.finish()
    name = function.text("name")
    if not name:
        raise function.refusal("name", name, "a text that is not empty")
    function.text("description")
    function.mapping("parameters")
    function.flag("strict")
    function.finish()
    return name


def _chosen(choice: object, names: list[str]) -> tuple[list[str], bool]:
    """The functions that may be called, and whether one has to be."""
    if choice in (None, "auto", "none"):
        return ([] if choice == "none" else names), False
    name: object = None
    if isinstance(choice, dict) and choice.get("type") == "function" and isinstance(choice.get("function"), dict):
        name = choice["function"].get("name")
    elif choice != "required":
        raise invalid(
            f"tool_choice is {shown(choice)}, must be auto, none, required or "
            '{"type": "function", "function": {"name": "..."}}',
            param="tool_choice",
        )
    if choice == "required" and names:
        return names, True
    if name not in names:
        raise invalid(
            f"tool_choice asks for {'a function' if choice == 'required' else shown(name)}, which tools does not have",
            param="tool_choice",
        )
    return [str(name)], True


def _as_template_wants(index: int, message: object) -> object:
    """Templates want the arguments of calls as objects, where the protocol has the text of one."""
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    place = f"messages[{index}].tool_calls"
    return message | {
        "tool_calls": [_with_object(f"{place}[{number}]", call) for number, call in enumerate(message["tool_calls"])]
    }


def _with_object(place: str, call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(f"{place} is {shown(call)}, must be a call with a function's name and arguments", param=place)
    arguments = function.get("arguments") or "{}"
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise invalid(
            f"{place}.function.arguments is {shown(arguments)}, must be the text of a JSON object", param=place
        )
    return call | {"function": function | {"arguments": parsed}}
