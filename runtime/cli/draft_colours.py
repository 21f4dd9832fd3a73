"""The option --show-drafts of ``run`` and ``chat``: tokens in colours that say where they come from."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from pilotfish.runtime.results import Event
from pilotfish.runtime.token_origins import ORIGINS, OriginTeller

if TYPE_CHECKING:
    from pilotfish.runtime.token_stream import TokenStream

ShowDrafts = Annotated[
    bool, typer.Option("--show-drafts", help="Colour tokens by where they come from: a draft, lookup or the target.")
]
# Colours of terminals, readable on a dark and on a light background: green, blue, magenta, and red underlined.
_STYLES = {"plain": "", "lookup": "\x1b[32m", "draft": "\x1b[34m", "head": "\x1b[35m", "corrected": "\x1b[31;4m"}
_END = "\x1b[0m"


class DraftColours:
    """Colours the tokens of one answer, and counts them."""

    def __init__(self, stream: TokenStream) -> None:
        """Begin before the stream's first event; its option explain is on."""
        self._stream = stream
        self._teller = OriginTeller()
        self._counts: Counter[str] = Counter()

    def paint(self, event: Event) -> str:
        """The event's text in its colour. A token that gives no whole character yet counts all the same."""
        origin = self._teller.tell(event, self._stream.rounds)
        self._counts[origin] += 1
        return painted(event.text, origin)

    def explain(self) -> None:
        """Write to stderr what the colours mean, and how many tokens have each."""
        counts = (f"{painted(name, name)} {self._counts[name]}" for name in ORIGINS if self._counts[name])
        sys.stderr.write(f"tokens by origin: {', '.join(counts)}\n")
        sys.stderr.flush()


def painted(text: str, origin: str) -> str:
    """A text in the colour of an origin; each of its lines by itself, which pagers want."""
    style = _STYLES[origin]
    return "\n".join(f"{style}{line}{_END}" if style and line else line for line in text.split("\n"))


def print_events(events: Iterable[Event], colours: DraftColours | None = None) -> None:
    """Write the text to stdout as it arrives, then a line's end; with colours also what they mean, to stderr."""
    for event in events:
        sys.stdout.write(colours.paint(event) if colours else event.text)
        sys.stdout.flush()
    sys.stdout.write("\n")
    sys.stdout.flush()
    if colours:
        colours.explain()
