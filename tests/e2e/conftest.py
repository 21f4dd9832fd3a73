"""Bundles that several files of these tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a draft model and a head that has a cache."""
    from head_bundles import LOW_BIT, agreeing_bundle  # torch and transformers, which the lowest versions do without
    from tiny_bundles import byte_tokenizer

    from pilotfish.exporter import export

    folder = tmp_path_factory.mktemp("both")
    agreeing_bundle(folder, "eagle", byte_tokenizer())
    target, head = folder / "target", folder / "agreeing"
    export(str(target), folder / "both", draft=str(target), head=str(head), options=LOW_BIT)
    return folder / "both"
