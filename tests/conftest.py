"""Bundles that the tests share: each is exported once a session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import CommandLine
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
    """Folders of the tiny checkpoints: byte vocabulary ("target", "draft") and a toy one ("toy", "toy_draft")."""
    from tiny_bundles import byte_tokenizer, save_checkpoint, toy_tokenizer

    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        "target": save_checkpoint(folder / "target", byte_tokenizer(), spread=0.5),
        "draft": save_checkpoint(folder / "draft", byte_tokenizer(), spread=0.5, noise=0.15, max_positions=192),
        "toy": save_checkpoint(folder / "toy", toy_tokenizer(10), spread=0.15),
        "toy_draft": save_checkpoint(folder / "toy_draft", toy_tokenizer(10), spread=0.15, noise=0.6),
    }


@pytest.fixture(scope="session")
def tiny_bundle(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """int4, byte vocabulary; the draft has fewer positions than the target."""
    from tiny_bundles import export_pair

    return export_pair(tmp_path_factory.mktemp("tiny") / "bundle", checkpoints["target"], checkpoints["draft"])


@pytest.fixture(scope="session")
def self_bundle(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The draft is the target."""
    from tiny_bundles import export_pair

    return export_pair(tmp_path_factory.mktemp("self") / "bundle", checkpoints["target"], checkpoints["target"])


@pytest.fixture(scope="session")
def cache_bundles(
    checkpoints: dict[str, Path], tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The tiny pair by the type of its caches."""
    from tiny_bundles import export_pair

    def exported(cache_dtype: str) -> Path:
        folder = tmp_path_factory.mktemp(cache_dtype) / "bundle"
        return export_pair(folder, checkpoints["target"], checkpoints["draft"], cache_dtype=cache_dtype)

    return {"f16": tiny_bundle, **{dtype: exported(dtype) for dtype in ("f32", "bf16", "int8", "fp8")}}


@pytest.fixture(scope="session")
def plain_bundle(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No draft."""
    from tiny_bundles import export_pair

    return export_pair(tmp_path_factory.mktemp("plain") / "bundle", checkpoints["target"], None)


@pytest.fixture(scope="session")
def toy_bundle(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve tokens, and a draft that is often wrong."""
    from tiny_bundles import export_pair

    bundle = tmp_path_factory.mktemp("toy") / "bundle"
    return export_pair(bundle, checkpoints["toy"], checkpoints["toy_draft"], linear="f32", rest="f32")


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
