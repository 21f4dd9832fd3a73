"""Text as HTML and SVG may have it: names and answers come from outside, and hold what their writers like."""

from __future__ import annotations

import re
from html import escape

# Characters that XML has not at all, and control characters, which pages show nothing for.
_ABSENT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def escaped(text: str) -> str:
    """The text as the content of an element or an attribute's value, with U+FFFD for what neither may hold."""
    return escape(_ABSENT.sub("\ufffd", text))
