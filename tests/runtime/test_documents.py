"""The documents are true where a program can tell: paths, links, options, docstrings, and quoted messages.

In docs/troubleshooting.md, the first column of each table headed "message" quotes what pilotfish prints, with
`{a placeholder}` for what it fills in.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
from build_api import FACADE, MODULES, dead_links, undocumented
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


def test_each_option_of_a_command_exists() -> None:
    """Options in what a page has as a command line of pilotfish."""
    lines = {line for page in DOCUMENTS for line in page.command_lines("pilotfish")}
    named = {(line, option) for line in lines for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", line)}
    known = options_of_commands()
    assert len(named) > 20
    assert [(line, option) for line, option in sorted(named) if option not in known] == []


def options_of_commands() -> set[str]:
    """Of all commands together, as their sources spell them: literally, or as the names of parameters."""
    sources = [*(ROOT / "runtime" / "cli").glob("*.py"), *(ROOT / "exporter" / "training").rglob("*.py")]
    options: set[str] = {"--help"}
    for tree in (ast.parse(path.read_text(encoding="utf-8")) for path in sources):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
                options.add(node.value)
            elif isinstance(node, ast.arg) or (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
                options.add(f"--{name.replace('_', '-')}")
    return options


def test_each_public_name_has_a_docstring() -> None:
    modules = [importlib.import_module(name) for name in (FACADE, *MODULES)]
    assert undocumented(*modules) == []


def test_the_reference_has_each_public_name() -> None:
    public = set(importlib.import_module(FACADE).__all__)
    assert public <= {name for module in MODULES for name in vars(importlib.import_module(module))}


INVENTED = """
from dataclasses import dataclass

class Bare:
    def method(self): ...
    def _private(self): ...
    @property
    def value(self): ...

class Told(Bare):
    "What it is."

@dataclass
class Generated:
    number: int

def function(): ...
"""


def test_names_without_a_docstring_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "invented_names.py").write_text(INVENTED, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    expected = ["Bare", "Bare.method", "Bare.value", "Generated", "Told.method", "Told.value", "function"]
    assert undocumented(importlib.import_module("invented_names")) == [f"invented_names.{name}" for name in expected]


def test_dead_links_of_the_reference_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="inner/page.html#there">1</a><a href="https://a.b/">2</a><a href="no.html">3</a>'
    )
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "page.html").write_text(
        '<p id="there"><a href="../index.html#gone">4</a><a href="#there">5</a>'
    )
    assert dead_links(tmp_path) == ["index.html: no.html", "inner/page.html: ../index.html#gone"]


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
