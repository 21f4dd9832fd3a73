"""A request of /v1/completions: its fields, and what they ask of the engine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pilotfish.runtime.option_checks import shown

from .asked import IGNORED, MOST_CHOICES, Asked, common_fields
from .errors import invalid
from .fields import Fields, parse_object

DEFAULT_TOKENS = 16  # the protocol's
MOST_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Prompts to continue."""

    asked: Asked
    prompts: list[str | list[int]]
    has_logprobs: bool


def read_completion(body: bytes) -> CompletionRequest:
    """Read a request.

    Raises:
        ApiError: what is wrong with it, by its field.
    """
    fields = Fields(parse_object(body))
    asked = common_fields(fields, default_tokens=DEFAULT_TOKENS, length_names=("max_tokens",))
    prompts = _prompts(fields.take("prompt"))
    if len(prompts) * asked.num_choices > MOST_CHOICES:
        raise invalid(
            f"prompt has {len(prompts)} prompts and n is {asked.num_choices}, must be at most {MOST_CHOICES} together",
            param="prompt",
        )
    num_logprobs = fields.integer("logprobs", 0, MOST_LOGPROBS)
    best_of = fields.integer("best_of", 1, MOST_CHOICES)
    if best_of not in (None, asked.num_choices):
        raise invalid(
            f"best_of is {best_of}, must be n, {asked.num_choices}: all choices are returned", param="best_of"
        )
    suffix = fields.text("suffix")
    if suffix:
        raise fields.refusal("suffix", suffix, "left out: text is not filled in")
    options: dict[str, Any] = {**asked.options, "logprobs": num_logprobs or 0, "echo": fields.flag("echo")}
    schema = fields.take("json_schema")
    if schema is not None:
        options["json_schema"] = schema
    ignored = tuple(fields.finish(IGNORED))
    return CompletionRequest(
        dataclasses.replace(asked, options=options, ignored=ignored), prompts, num_logprobs is not None
    )


def _prompts(content: object) -> list[str | list[int]]:
    """The protocol's four forms: a text, token ids, or a list of either."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, list) and content:
        if all(isinstance(each, int) and not isinstance(each, bool) for each in content):
            return [content]
        if all(isinstance(each, str) for each in content) or all(_is_ids(each) for each in content):
            return content
    raise invalid(
        f"prompt is {shown(content)}, must be a text, token ids, or a list that is not empty of texts or of token ids",
        param="prompt",
    )


def _is_ids(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in content)
