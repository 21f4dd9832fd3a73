"""Flags of the training command, and fields of option classes that say which flag sets them."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_FLAG = "flag"  # key of a field's metadata


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag and the option field it sets; "text.steps" is the field of a nested dataclass."""

    name: str
    field: str
    type: Callable[[str], Any]
    help: str
    choices: tuple[str, ...] | None = None


def option(name: str, text: str, kind: Callable[[str], Any] = int, *, default: Any) -> Any:
    """A dataclass's field with the flag that sets it, whose help is `text`; kind: makes a value of the flag's text."""
    return dataclasses.field(default=default, metadata={_FLAG: (name, kind, text)})


def flags_of(options: type, outer: str) -> tuple[Flag, ...]:
    """The flags of a dataclass's fields, which are nested in the field `outer`."""
    fields = [item for item in dataclasses.fields(options) if _FLAG in item.metadata]
    found = [(item.name, item.metadata[_FLAG]) for item in fields]
    return tuple(Flag(flag, f"{outer}.{field}", kind, text) for field, (flag, kind, text) in found)


def numbers(text: str) -> tuple[float, ...]:
    """Comma-separated."""
    return tuple(float(part) for part in text.split(","))


def layers(text: str) -> tuple[int, ...]:
    """Comma-separated."""
    return tuple(int(part) for part in text.split(","))


def paths(text: str) -> tuple[Path, ...]:
    """Comma-separated."""
    return tuple(Path(part) for part in text.split(","))


def yes_or_no(text: str) -> bool:
    """Raises ArgumentTypeError for another word."""
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
    return text == "yes"
