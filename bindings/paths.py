"""Where the installed package keeps its C side, for programs that link against it."""

from __future__ import annotations

from pathlib import Path

from . import _ffi


def library_path() -> Path:
    """Path of the installed libpilotfish.so."""
    return Path(_ffi.__file__).resolve().parent / "libpilotfish.so"


def include_dir() -> Path:
    """Folder that holds the installed pilotfish.h."""
    return Path(_ffi.__file__).resolve().parent / "include"


def compiler_flags() -> str:
    """Flags for a C compiler: header, library and the run path that finds it again."""
    folder = library_path().parent
    return f"-I{include_dir()} -L{folder} -Wl,-rpath,{folder} -lpilotfish"
