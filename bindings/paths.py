"""Where the installed package keeps its C side, for programs that link against it."""

from __future__ import annotations

from pathlib import Path

from . import _ffi
from .operating_system import library_name, link_flags


def library_path() -> Path:
    """Path of the installed library."""
    return Path(_ffi.__file__).resolve().parent / library_name("pilotfish")


def include_dir() -> Path:
    """Folder that holds the installed pilotfish.h."""
    return Path(_ffi.__file__).resolve().parent / "include"


def compiler_flags() -> str:
    """Flags for a C compiler: header, library and the run path that finds it again."""
    return f"-I{include_dir()} {link_flags(library_path().parent, 'pilotfish')}"
