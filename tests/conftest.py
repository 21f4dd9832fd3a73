"""Bundles that the tests share: each is exported once a session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import CommandLine
from prepared_bundles import export_heads, export_named, export_row_wise, prepared, save_checkpoints
from traced_once import trace_once

from pilotfish import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS = 2  # of tiny bundles; real ones have one, as two processes run tests side by side
# Few tests that take minutes: they begin first, so that no process is left alone with them in the end.
LONG_FILES = ("test_sampled_distribution.py", "test_draft_vocabulary.py", "test_field_issues_memory.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of LONG_FILES first, and all others as they are."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


def pytest_runtest_setup() -> None:
    trace_once()


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Calibrations of the tests' bundles stay out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """See `save_checkpoints`."""
    return save_checkpoints(tmp_path_factory.mktemp("checkpoints"))


class Pairs:
    """The pairs by name, each exported at its first use or prepared beforehand."""

    def __init__(self, request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> None:
        self._request = request
        self._factory = factory

    def __call__(self, name: str) -> Path:
        if bundle := prepared(name):
            return bundle
        checkpoints = self._request.getfixturevalue("checkpoints")
        return export_named(name, self._factory.mktemp(name) / "bundle", checkpoints)


@pytest.fixture(scope="session")
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return Pairs(request, tmp_path_factory)


@pytest.fixture(scope="session")
def tiny_bundle(pairs: Pairs) -> Path:
    """int4, byte vocabulary; the draft has fewer positions than the target."""
    return pairs("tiny")


@pytest.fixture(scope="session")
def self_bundle(pairs: Pairs) -> Path:
    """The draft is the target."""
    return pairs("self")


@pytest.fixture(scope="session")
def cache_bundles(pairs: Pairs, tiny_bundle: Path) -> dict[str, Path]:
    """The tiny pair by the type of its caches."""
    return {"f16": tiny_bundle, **{dtype: pairs(dtype) for dtype in ("f32", "int8")}}


@pytest.fixture(scope="session")
def plain_bundle(pairs: Pairs) -> Path:
    """No draft."""
    return pairs("plain")


@pytest.fixture(scope="session")
def toy_bundle(pairs: Pairs) -> Path:
    """Twelve tokens, and a draft that is often wrong."""
    return pairs("toy")


@pytest.fixture(scope="session")
def row_wise_bundle(plain_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plain one, whose logits go through further nodes."""
    return prepared("row_wise") or export_row_wise(plain_bundle, tmp_path_factory.mktemp("row_wise") / "bundle")


@pytest.fixture(scope="session")
def head_bundles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bundles, one for each kind of head."""
    if folder := prepared("heads"):
        return folder
    return export_heads(tmp_path_factory.mktemp("heads") / "kinds", request.getfixturevalue("checkpoints"))


@pytest.fixture(scope="session")
def hostile(plain_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of forged bundles."""
    if folder := prepared("hostile"):
        return folder
    from hostile_bundles import forge

    return forge(plain_bundle, tmp_path_factory.mktemp("hostile") / "forged")


@pytest.fixture(scope="session")
def engine(tiny_bundle: Path) -> Iterator[Engine]:
    """The tiny pair, loaded once."""
    with Engine(tiny_bundle, threads=THREADS, num_sequences=4) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def real_bundle() -> Path:
    """SmolLM2-135M-Instruct with its draft, exported beforehand (tests/run.sh does)."""
    bundle = os.environ.get("PILOTFISH_REAL_BUNDLE")
    if not bundle:
        pytest.skip("PILOTFISH_REAL_BUNDLE names no bundle of the real pair; tests/run.sh exports one")
    return Path(bundle)


@pytest.fixture(scope="session")
def real_engine(real_bundle: Path) -> Iterator[Engine]:
    """The real pair, loaded once."""
    with Engine(real_bundle, threads=1) as loaded:
        yield loaded


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The ``pilotfish`` command, in this process."""
    return CommandLine(monkeypatch, capsys)
