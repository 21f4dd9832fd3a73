"""A server over the tiny bundle, and clients of it."""

from __future__ import annotations

import json
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import openai
import pytest
from serving import NAME, PATIENCE_SECONDS, TOOL_TEMPLATE, serving

from pilotfish import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def tool_bundle(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with a chat template for tools."""
    folder = tmp_path_factory.mktemp("serve") / NAME
    shutil.copytree(tiny_bundle, folder)
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"tool_template": TOOL_TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def address(tool_bundle: Path) -> Iterator[str]:
    """Of a server."""
    with serving(tool_bundle) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    """Of that server."""
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def direct(tool_bundle: Path) -> Iterator[Engine]:
    """The same bundle, without a server."""
    with Engine(tool_bundle, threads=1, calibration="off") as engine:
        yield engine


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, servers of this process run no rounds: what runs stays, and what waits waits."""
    may_run = threading.Event()
    step_together = Engine.step_together

    def stepped(engine: Engine, streams: Any) -> Any:
        may_run.wait(PATIENCE_SECONDS)
        return step_together(engine, streams)

    monkeypatch.setattr(Engine, "step_together", stepped)
    yield may_run
    may_run.set()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of servers of this process take 50 ms."""
    step_together = Engine.step_together

    def stepped(engine: Engine, streams: Any) -> Any:
        time.sleep(0.05)
        return step_together(engine, streams)

    monkeypatch.setattr(Engine, "step_together", stepped)
