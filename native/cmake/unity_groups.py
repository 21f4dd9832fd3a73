"""Which sources may be one translation unit: prints the group's number for each source that is named, for CMake.

Unnamed namespaces of one translation unit are one namespace, so sources that declare the same name in theirs are put in
different groups. clang-format leaves declarations, and nothing of a function's body, at the beginning of a line.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.DOTALL | re.MULTILINE)
_DECLARED = re.compile(r"\b([A-Za-z_]\w*)\s*[({=;\[]")


def local_names(text: str) -> set[str]:
    """The names that a source declares in unnamed namespaces, and a few more, which cost a group at most."""
    lines = [line for block in _UNNAMED.findall(text) for line in block.splitlines()]
    return {name for line in lines if line[:1] not in {"", " ", "}", "/", "#"} for name in _DECLARED.findall(line)}


def unity_groups(sources: list[Path]) -> list[int]:
    """The first group for each source in which none before it has declared one of its names."""
    taken: list[set[str]] = []
    groups = []
    for source in sources:
        names = local_names(source.read_text(encoding="utf-8"))
        group = next((i for i, others in enumerate(taken) if not names & others), len(taken))
        if group == len(taken):
            taken.append(set())
        taken[group] |= names
        groups.append(group)
    return groups


if __name__ == "__main__":
    print(*unity_groups([Path(name) for name in sys.argv[1:]]), sep=";", end="")
