"""What a benchmark generates from: a fixed text of any length, or a file of prompts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pilotfish.bindings import InvalidArgumentError

from .bench import Prompt
from .files import read_lines
from .option_checks import require

if TYPE_CHECKING:
    from .engine import Engine

_TEXT = """The harbour wakes before the town does. At four in the morning the first boats come in with their lamps still
lit, and the women who buy the catch stand on the quay in rubber boots, arguing about the price of mackerel. By six the
ice lorries have left for the city, the nets are spread out to dry, and somebody has put a kettle on in the shed behind
the chandler's shop. Children cross the square on their way to school and stop to look at whatever the trawlers brought
up by mistake: a boot, a bottle, once an anchor older than the church. The harbour master writes all of it down in a
long green book, because his father did, and because a port that forgets what the sea gave it will soon forget what it
owes. In the afternoon the wind turns west and the gulls go quiet. Then the ferry comes round the point, low and slow,
carrying the post, two bicycles, and every so often a stranger who asks where one can sleep for the night. There is one
answer to that, and it has a blue door. """


def fixed_prompt(engine: Engine, num_tokens: int) -> list[Prompt]:
    """One prompt of exactly ``num_tokens`` tokens of English, repeated from its beginning where it is too short."""
    if num_tokens < 1:
        raise InvalidArgumentError(f"--prompt-tokens is {num_tokens}, must be at least 1")
    ids = engine.encode(_TEXT.replace("\n", " "))
    repeated = ids * (num_tokens // len(ids) + 1)
    return [Prompt("fixed", tuple(repeated[:num_tokens]), ignore_eos=True)]


def prompts_from_file(engine: Engine, path: str) -> list[Prompt]:
    """Prompts of a file of JSON lines with "prompt" and "category", through the bundle's chat template if it has one.

    Raises:
        InvalidArgumentError: the file cannot be read, or a line of it is not such an object.
    """
    lines = read_lines("--prompts", path)
    prompts = [_parse(engine, path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise InvalidArgumentError(f"--prompts {path} holds no prompt")
    return prompts


def _parse(engine: Engine, path: str, number: int, line: str) -> Prompt:
    try:
        entry = json.loads(line)
        text, category = entry["prompt"], entry["category"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgumentError(
            f'{path} line {number} is {line!r:.40}, must be a JSON object with "prompt" and "category"'
        ) from error
    for name, value in (("prompt", text), ("category", category)):
        require(f"{path} line {number}: {name}", value, isinstance(value, str), "a string")
    has_template = engine.manifest.chat_template is not None
    ids = engine.encode_chat([{"role": "user", "content": text}]) if has_template else engine.encode(text)
    return Prompt(category, tuple(ids), ignore_eos=False)
