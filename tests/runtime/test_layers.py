"""The folders are layers: files use their own folder and those that CONTRIBUTING.md allows, and no two use each other.

The table under "Where code belongs" is the only place where the order is written.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDED_FROM = ("native/src", "native/include", "native/ops", "native/cpu", "native/cuda", "native/cuda/operators")
AND_BELOW = "and what these may use"


@cache
def allowed() -> dict[str, frozenset[str]]:
    """Of each folder, those that it may use."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_/]+)/` \| .* \| (.*?) ?\|$", page, re.MULTILINE)
    found: dict[str, frozenset[str]] = {}
    for folder, cell in rows:
        named = {name.rstrip("/") for name in re.findall(r"`([^`]+)`", cell)}
        assert named <= found.keys(), f"{folder} may use what stands below it in the table"
        found[folder] = frozenset(named.union(*(found[name] for name in named)) if AND_BELOW in cell else named)
    return found


def folder_of(path: Path) -> str | None:
    """The folder of the table that a file is in; None: of none of them, such as the package's own __init__.py."""
    inside = path.relative_to(ROOT).as_posix()
    holding = [folder for folder in allowed() if inside.startswith(f"{folder}/")]
    return max(holding, key=len, default=None)


def included_by(path: Path) -> list[Path]:
    names = re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    # As the compiler looks: beside the file first.
    places = [path.parent, *(ROOT / folder for folder in INCLUDED_FROM)]
    found = [[place / name for place in places if (place / name).is_file()] for name in names]
    return [files[0] for files in found if files]  # the others are of other projects


def imported_by(path: Path) -> list[Path]:
    """What stands for the imported names: a module has the suffix left out, a name of a module counts as inside it."""
    package = ["pilotfish", *path.relative_to(ROOT).parent.parts]
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            names += [".".join([*parts, *filter(None, [node.module]), alias.name]) for alias in node.names]
    return [ROOT / Path(*name.split(".")[1:]) for name in names if name.startswith("pilotfish.")]


def sources() -> list[Path]:
    python = [path for folder in ("bindings", "runtime", "exporter") for path in (ROOT / folder).rglob("*.py")]
    return python + [path for path in (ROOT / "native").rglob("*") if path.suffix in NATIVE_SUFFIXES]


def edges() -> dict[tuple[str, str], set[str]]:
    """From folder to folder: which files use the other."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in sources():
        own = folder_of(path)
        for used in imported_by(path) if path.suffix == ".py" else included_by(path):
            other = folder_of(used)
            if own is not None and other is not None and other != own:
                found.setdefault((own, other), set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_the_table_names_every_folder_of_sources() -> None:
    assert sorted({path.parent for path in sources() if folder_of(path) is None}) == []
    missing = [folder for folder in allowed() if not (ROOT / folder).is_dir()]
    assert missing == []


def test_files_use_what_the_table_allows() -> None:
    found = edges()
    assert ("native/src/round", "native/src/engine") in found
    assert ("runtime/cli", "runtime") in found
    assert {edge: files for edge, files in found.items() if edge[1] not in allowed()[edge[0]]} == {}


@pytest.mark.parametrize("folder", sorted(allowed()))
def test_no_two_folders_use_each_other(folder: str) -> None:
    assert [other for other in allowed()[folder] if folder in allowed()[other]] == []
