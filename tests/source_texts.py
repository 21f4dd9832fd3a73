"""The texts in the project's sources, with a mark where something is filled in: what a quoted message is found in.

A file's texts are joined by marks, and so is what stands between the parts of one message: `f"{path} is missing"` and
`fail(status, path, " is missing")` both give MARK, " is missing", MARK.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARK = "\0"
FOLDERS = ("bindings", "runtime", "exporter", "native")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_MOST_FILLED_IN = 5  # texts of the source within what one placeholder stands for
_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|\'(?:\\.|[^\'\\\n])\'|"(?P<text>(?:\\.|[^"\\\n])*)"', re.DOTALL)
_CMAKE_VARIABLE = re.compile(r"\$\{\w+\}")
_ESCAPES = {r"\"": '"', r"\\": "\\", r"\n": " "}  # the command prints a message in one line


def message_pattern(message: str) -> re.Pattern[str]:
    """What finds a message, in which `{anything}` stands for what the program fills in, in the texts of a file."""
    filled_in = f"{MARK}(?:[^{MARK}]*{MARK}){{0,{_MOST_FILLED_IN}}}"
    parts = [re.escape(part) for part in _PLACEHOLDER.split(message)]
    begin, end = "" if parts[0] == "" else f"(?<={MARK})", "" if parts[-1] == "" else f"(?={MARK})"
    return re.compile(begin + filled_in.join(parts) + end)


def texts_of_sources(root: Path) -> dict[Path, str]:
    """The texts of each source file that may have messages."""
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.is_file()]
    texts = {path: _texts(path) for path in files if path.suffix in {".py", ".cpp", ".h", ".cu", ".cuh", ".cmake"}}
    return texts | {path: _c_texts(path.read_text(encoding="utf-8")) for path in files if path.name == "CMakeLists.txt"}


def _texts(path: Path) -> str:
    source = path.read_text(encoding="utf-8")
    return MARK + MARK.join(_python_texts(ast.parse(source))) + MARK if path.suffix == ".py" else _c_texts(source)


def _python_texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else MARK for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _python_texts(child)


def _c_texts(source: str) -> str:
    """Texts with nothing but blanks between them are one."""
    joined, end = MARK, 0
    for found in _COMMENT_OR_TEXT.finditer(source):
        text = found["text"]
        if text is None:
            continue
        text = re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), text)
        text = _CMAKE_VARIABLE.sub(MARK, text)
        joined += text if not source[end : found.start()].strip() else MARK + text
        end = found.end()
    return joined + MARK
