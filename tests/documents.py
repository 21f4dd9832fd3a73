"""Reads the project's documents: their paths, links, headings and tables."""

from __future__ import annotations

import fnmatch
import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NOT_OURS = {"build", "dist"}
_EXTENSIONS = ("py", "cpp", "c", "h", "cu", "cuh", "sh", "md", "cmake", "toml")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_NAMED_FILE = re.compile(rf"[\w*./-]+\.(?:{'|'.join(_EXTENSIONS)})")


class Document(NamedTuple):
    """A page."""

    path: Path
    text: str

    @property
    def prose(self) -> str:
        """The page without its fenced blocks."""
        return _FENCED.sub("", self.text)

    def anchors(self) -> set[str]:
        """What a link may name after `#`: headings in lower case, without punctuation, blanks as hyphens."""
        anchors: set[str] = set()
        for heading in _HEADING.findall(self.prose):
            plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
            slug = plain.replace(" ", "-")
            number = sum(name == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", name) is not None for name in anchors)
            anchors.add(f"{slug}-{number}" if number else slug)
        return anchors

    def links(self) -> list[str]:
        """Where links within the repository lead."""
        return [target for target in _LINK.findall(self.prose) if "://" not in target]

    def command_lines(self, program: str) -> list[str]:
        """Lines of fenced blocks, and words in backquotes, that begin with a program's name."""
        blocks = "\n".join(_FENCED.findall(self.text)).replace("\\\n", " ")
        lines = [*(line.partition("  # ")[0] for line in blocks.splitlines()), *_CODE.findall(self.prose)]
        return [" ".join(line.split()) for line in lines if line.split()[:1] == [program]]

    def table_cells(self, header: str) -> list[str]:
        """The first cells of the tables whose first column has this header."""
        cells, is_in = [], False
        for line in self.prose.splitlines():
            first = line.split("|")[1].strip() if line.startswith("|") else None
            if first is None or first == header:
                is_in = first is not None
            elif is_in and first.strip("-: "):
                cells.append(first)
        return cells


class Repository:
    """The files that are the project's, whatever was built beside them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def names(self) -> list[str]:
        """Files and folders, relative to the root."""
        return [str(path.relative_to(self.root)) for top in self._tops() for path in (top, *sorted(top.rglob("*")))]

    def documents(self) -> list[Document]:
        """All pages."""
        paths = [self.root / name for name in self.names if name.endswith(".md")]
        return [Document(path, path.read_text(encoding="utf-8")) for path in paths]

    def has(self, name: str) -> bool:
        """Whether a path, its end, or a pattern of one names something here."""
        name = name.rstrip("/")
        return any(fnmatch.fnmatch(known, name) or fnmatch.fnmatch(known, f"*/{name}") for known in self.names)

    def paths_in(self, document: Document) -> Iterator[str]:
        """Words of a page that are paths: below a folder of ours anywhere, and source files' names in backquotes."""
        folders = "|".join(re.escape(top.name) for top in self._tops() if top.is_dir())
        yield from (
            found.rstrip(".") for found in re.findall(rf"(?<![\w/.$}}-])(?:{folders})/[\w*./-]*", document.text)
        )
        words = [word.strip("(),;:\"'") for code in _CODE.findall(document.prose) for word in code.split()]
        yield from (word for word in words if _NAMED_FILE.fullmatch(word) and not word.startswith("/"))

    def _tops(self) -> list[Path]:
        return sorted(
            path
            for path in self.root.iterdir()
            if path.name not in _NOT_OURS
            and (not path.name.startswith(".") or path.name == ".ci")
            and not (path / "pyvenv.cfg").exists()
        )
