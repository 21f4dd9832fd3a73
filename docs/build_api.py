"""Builds the API reference from docstrings: python docs/build_api.py [FOLDER], build/docs by default.

It needs the installed package and the extra "docs". A public name without a docstring, a link that leads nowhere and
anything that pdoc warns about are errors.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

MODULES = ("pilotfish.runtime", "pilotfish.bindings.errors")
FACADE = "pilotfish"  # its names are those of MODULES, imported when they are first asked for
_METHODS = (property, staticmethod, classmethod)


def undocumented(*modules: ModuleType) -> list[str]:
    """The public names of modules, and of their classes' methods and properties, that lack a docstring."""
    named = ((f"{module.__name__}.{name}", value) for module in modules for name, value in _public(module))
    found = {full: value for name, value in named for full, value in _with_members(name, value)}
    return sorted(name for name, value in found.items() if not _has_docstring(value))


def _public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """The names in ``__all__``; without one, the public classes and functions that the module defines."""
    if hasattr(module, "__all__"):
        yield from ((name, getattr(module, name)) for name in module.__all__)
        return
    for name, value in vars(module).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
            yield name, value


def _with_members(name: str, value: object) -> Iterator[tuple[str, object]]:
    yield name, value
    for owner in inspect.getmro(value) if inspect.isclass(value) else ():
        if owner.__module__.partition(".")[0] in sys.stdlib_module_names:
            continue
        for member, item in vars(owner).items():
            if not member.startswith("_") and (inspect.isfunction(item) or isinstance(item, _METHODS)):
                yield f"{name}.{member}", item


def _has_docstring(value: object) -> bool:
    text = (value.__doc__ or "").strip()
    is_generated = inspect.isclass(value) and text.startswith(f"{value.__name__}(")  # what dataclass writes
    return bool(text) and not is_generated


class _Page(HTMLParser):
    """The links of a page, and what they may name in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if identifier := values.get("id"):
            self.anchors.add(identifier)
        if tag == "a" and (target := values.get("href")):
            self.links.append(target)


def dead_links(folder: Path) -> list[str]:
    """Links between the pages of a folder, as "page: target", that lead nowhere."""
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    return [
        f"{path.relative_to(folder.resolve())}: {target}"
        for path, page in pages.items()
        for target in page.links
        if "://" not in target and not _leads_somewhere(path, target, pages)
    ]


def _leads_somewhere(path: Path, target: str, pages: dict[Path, _Page]) -> bool:
    name, _, anchor = unquote(target).partition("#")
    page = pages.get((path.parent / name).resolve() if name else path)
    return page is not None and (not anchor or anchor in page.anchors)


def build(folder: Path) -> None:
    """Write the pages of MODULES."""
    import pdoc  # noqa: PLC0415 - the checks above need no extra

    pdoc.render.configure(docformat="google", show_source=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # pdoc's way to tell of a name that it cannot read
        pdoc.pdoc(*MODULES, output_directory=folder)


def main() -> None:
    """Check, build and check what was built."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
    if names := undocumented(*map(importlib.import_module, (FACADE, *MODULES))):
        sys.exit(f"these public names have no docstring: {', '.join(names)}")
    build(folder)
    if links := dead_links(folder):
        sys.exit(f"these links lead nowhere: {', '.join(links)}")
    print(f"{folder / 'index.html'}: {len(list(folder.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
