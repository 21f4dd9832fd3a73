"""The table of docs/models.md, from the table that the tests run on.

``python tests/support_matrix.py`` prints it; ``--write`` puts it into the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from architectures import ARCHITECTURES, FULL, NODES
from gguf_families import GGUF_FAMILIES

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
BEGIN, END = "<!-- models -->", "<!-- end of models -->"


def matrix() -> str:
    """A line for each architecture: with a star, if all checks run on it, and with the name of its GGUF files."""
    lines = ["| model | what is in it | nodes a layer | GGUF |", "|---|---|---|---|"]
    for name, (_, _, new) in ARCHITECTURES.items():
        architecture = f"`{GGUF_FAMILIES[name].architecture}`" if name in GGUF_FAMILIES else ""
        lines.append(f"| {name}{' *' if name in FULL else ''} | {new} | {NODES.get(name, 5)} | {architecture} |")
    return "\n".join(lines)


def replaced(text: str) -> str:
    """The page with the table of now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{matrix()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(matrix() + "\n")
