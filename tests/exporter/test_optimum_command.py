"""`optimum-cli export pilotfish`, through optimum's own command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from optimum.commands import optimum_cli

from pilotfish.exporter import check_bundle, optimum_command

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What optimum finds in its register folder once the wheel is installed, wherever this test runs from."""
    monkeypatch.setattr(optimum_cli, "load_optimum_namespace_cli_commands", lambda: optimum_command.REGISTER_COMMANDS)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["optimum-cli", "export", "pilotfish", *arguments])
    optimum_cli.main()


def test_exports_a_pair(
    family_checkpoints: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    llama, out = str(family_checkpoints["llama"]), tmp_path / "out"
    run(monkeypatch, "-m", llama, "--draft", llama, "--linear", "int8", "--no-parity", str(out))
    manifest = check_bundle(out)
    assert manifest.models["target"].formats.linear == "int8"
    assert "draft" in manifest.models
    assert "target: llama, 0.1 M parameters, 2 layers" in capsys.readouterr().out


def test_bad_input_is_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, "-m", "./missing", str(tmp_path / "out"))
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: ./missing does not exist"
