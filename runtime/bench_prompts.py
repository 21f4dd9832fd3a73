"""What a benchmark generates from: the 60 prompts of this package, a file of prompts, or a fixed text of any length."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.bindings import ContextFullError, InvalidArgumentError

from .bench import Prompt
from .files import parse_json, read_lines
from .option_checks import check_encodable, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine import Engine

BUILT_IN = Path(__file__).with_name("bench_prompts.jsonl")
_TEXT = """The harbour wakes before the town does. At four in the morning the first boats come in with their lamps still
lit, and the women who buy the catch stand on the quay in rubber boots, arguing about the price of mackerel. By six the
ice lorries have left for the city, the nets are spread out to dry, and somebody has put a kettle on in the shed behind
the chandler's shop. Children cross the square on their way to school and stop to look at whatever the trawlers brought
up by mistake: a boot, a bottle, once an anchor older than the church. The harbour master writes all of it down in a
long green book, because his father did, and because a port that forgets what the sea gave it will soon forget what it
owes. In the afternoon the wind turns west and the gulls go quiet. Then the ferry comes round the point, low and slow,
carrying the post, two bicycles, and every so often a stranger who asks where one can sleep for the night. There is one
answer to that, and it has a blue door. """


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts, and how reports name them."""

    name: str
    """A file's path, "built-in" or "fixed"."""
    digest: str
    """SHA-256 of their texts and categories: reports with the same one measured the same prompts."""
    prompts: tuple[Prompt, ...]
    """Those that fit the context."""
    num_too_long: int = 0


def fixed_prompt(engine: Engine, num_tokens: int) -> PromptSet:
    """One prompt of exactly ``num_tokens`` tokens of English, repeated from its beginning where it is too short."""
    if num_tokens < 1:
        raise InvalidArgumentError(f"--prompt-tokens is {num_tokens}, must be at least 1")
    prompt = Prompt("fixed", fixed_ids(engine, num_tokens), ignore_eos=True)
    return PromptSet("fixed", _digest([f"fixed {num_tokens}"]), (prompt,))


def fixed_ids(engine: Engine, num_tokens: int) -> tuple[int, ...]:
    """So many tokens of a text of this package."""
    ids = engine.encode(_TEXT.replace("\n", " "))
    repeated = ids * (num_tokens // len(ids) + 1)
    return tuple(repeated[:num_tokens])


def built_in_prompts(engine: Engine, new_tokens: int) -> PromptSet:
    """The 60 prompts of this package, ten of each of six kinds."""
    return _prompt_set(engine, "built-in", str(BUILT_IN), new_tokens)


def prompts_from_file(engine: Engine, path: str, new_tokens: int = 1, context: int | None = None) -> PromptSet:
    """Prompts of a file of JSON lines with "prompt" and "category", through the bundle's chat template if it has one.

    Those that leave no room for ``new_tokens`` in the context, the engine's or a smaller one, are left out and counted.

    Raises:
        InvalidArgumentError: the file cannot be read, or a line of it is not such an object.
        ContextFullError: all of them are too long.
    """
    return _prompt_set(engine, path, path, new_tokens, context)


def _prompt_set(engine: Engine, name: str, path: str, new_tokens: int, context: int | None = None) -> PromptSet:
    lines = [(number, line) for number, line in enumerate(read_lines("--prompts", path), 1) if line.strip()]
    if not lines:
        raise InvalidArgumentError(f"--prompts {path} holds no prompt")
    entries = [_parse(path, number, line) for number, line in lines]
    prompts = [_tokenize(engine, category, text) for category, text in entries]
    whole = engine.info.max_context
    context = whole if context is None else context
    fits = [len(prompt.ids) <= context - new_tokens for prompt in prompts]
    fitting = tuple(itertools.compress(prompts, fits))
    if not fitting:
        raise ContextFullError(
            f"none of the {len(prompts)} prompts of {name} leaves room for {new_tokens} tokens in the context of "
            f"{context}{' of the draft' if context < whole else ''}: give a larger --max-context, or fewer --new-tokens"
        )
    # Of those that are measured: a prompt's number is its place among them.
    digest = _digest([part for entry in itertools.compress(entries, fits) for part in entry])
    return PromptSet(name, digest, fitting, num_too_long=len(prompts) - len(fitting))


def _parse(path: str, number: int, line: str) -> tuple[str, str]:
    """Category and text of a line."""
    try:
        entry = parse_json(line)
        text, category = entry["prompt"], entry["category"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgumentError(
            f'{path} line {number} is {line!r:.40}, must be a JSON object with "prompt" and "category" ({error})'
        ) from error
    for name, value in (("prompt", text), ("category", category)):
        place = f"{path} line {number}: {name}"
        require(place, value, isinstance(value, str), "a string")
        require(place, value, bool(value.strip()), "a text that is not empty")
        check_encodable(place, value)
    return category, text


def _tokenize(engine: Engine, category: str, text: str) -> Prompt:
    has_template = engine.manifest.chat_template is not None
    ids = engine.encode_chat([{"role": "user", "content": text}]) if has_template else engine.encode(text)
    return Prompt(category, tuple(ids), ignore_eos=False)


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
