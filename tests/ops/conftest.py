from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def library() -> str:
    """Path of libpilotfish.so: PILOTFISH_LIBRARY, or the installed package's."""
    if "PILOTFISH_LIBRARY" in os.environ:
        return os.environ["PILOTFISH_LIBRARY"]
    from pilotfish.bindings import library_path

    return str(library_path())
