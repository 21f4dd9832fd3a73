"""The documents are true where a program can tell: paths, links, and what docs/troubleshooting.md quotes.

In docs/troubleshooting.md, the first column of each table headed "message" quotes what pilotfish prints, with
`{a placeholder}` for what it fills in.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from documents import Document, Repository
from source_texts import message_pattern, texts_of_sources

REPOSITORY = Repository(Path(__file__).resolve().parents[2])
ROOT = REPOSITORY.root
DOCUMENTS = REPOSITORY.documents()
TROUBLESHOOTING = next(page for page in DOCUMENTS if page.path == ROOT / "docs" / "troubleshooting.md")
SOURCES = texts_of_sources(ROOT)
ONLY_IN_HISTORY = {"samples/smollm2-draft-16m.gguf"}  # pages say so
LEAST_QUOTED = 5  # characters of a message beside what is filled in
EACH_PAGE = pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.path.relative_to(ROOT)))


@EACH_PAGE
def test_each_path_exists(page: Document) -> None:
    named = set(REPOSITORY.paths_in(page)) - ONLY_IN_HISTORY
    assert [name for name in sorted(named) if not REPOSITORY.has(name)] == []


@EACH_PAGE
def test_each_link_leads_somewhere(page: Document) -> None:
    assert [target for target in page.links() if not leads_somewhere(page, target)] == []


def leads_somewhere(page: Document, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (page.path.parent / name).resolve() if name else page.path
    if not path.exists() or not path.is_relative_to(ROOT):
        return False
    return not anchor or anchor in Document(path, path.read_text(encoding="utf-8")).anchors()


def test_each_quoted_message_is_in_the_sources() -> None:
    messages = quoted_messages()
    assert len(messages) > len(exception_classes())
    assert [message for message in messages if not is_in_sources(message)] == []


def test_quoted_messages_say_something() -> None:
    assert [text for text in quoted_messages() if len(re.sub(r"\{[^{}]*\}", "", text).strip()) < LEAST_QUOTED] == []


def quoted_messages() -> list[str]:
    return [code for cell in TROUBLESHOOTING.table_cells("message") for code in re.findall("`([^`]+)`", cell)]


@pytest.mark.parametrize(
    ("message", "is_found"),
    [
        ("{path} is missing from the bundle ({reason})", True),  # an f-string
        ("{path}: expected {count} bytes, found {count}", True),  # arguments of a call in C++
        ("{path} is missing from the bundles ({reason})", False),
        ("is missing from the bundle", False),  # a part of a message
        ("{path}: found {count} bytes, expected {count}", False),  # its parts in another order
    ],
)
def test_messages_are_found_whole_and_in_order(message: str, *, is_found: bool) -> None:
    assert is_in_sources(message) is is_found


def is_in_sources(message: str) -> bool:
    pattern = message_pattern(message)
    return any(pattern.search(texts) for texts in SOURCES.values())


def test_each_exception_class_has_an_entry() -> None:
    headings = " ".join(re.findall(r"^#+ .*$", TROUBLESHOOTING.prose, re.MULTILINE))
    assert [name for name in sorted(exception_classes()) if f"`{name}`" not in headings] == []


def exception_classes() -> set[str]:
    """PilotfishError and all classes of the package below it, by name."""
    bases: dict[str, set[str]] = {}
    for folder in ("bindings", "runtime", "exporter"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    names = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                    bases.setdefault(node.name, set()).update(names)
    known, num_known = {"PilotfishError"}, 0
    while num_known < len(known):
        num_known = len(known)
        known |= {name for name, above in bases.items() if above & known}
    return known


def test_each_status_of_c_has_an_entry() -> None:
    header = (ROOT / "native" / "include" / "pilotfish.h").read_text(encoding="utf-8")
    statuses = re.findall(r"(PF_\w+) = ", header.partition("PF_OK = 0")[2].partition("}")[0])
    assert "PF_INTERNAL" in statuses
    assert [name for name in statuses if f"`{name}`" not in TROUBLESHOOTING.text] == []


def test_each_exit_code_has_an_entry() -> None:
    sources = [*(ROOT / "runtime" / "cli").glob("*.py"), ROOT / "native" / "package" / "__main__.py"]
    codes = {code for path in sources for code in re.findall(r"^EXIT_\w+ = (\d+)", path.read_text(), re.MULTILINE)}
    assert codes >= {"1", "2"}
    assert codes <= set(TROUBLESHOOTING.table_cells("exit code"))
