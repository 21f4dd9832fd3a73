"""`optimum-cli export pilotfish`, through optimum's own command line."""

from __future__ import annotations

import argparse
import inspect
from typing import TYPE_CHECKING

import pytest
from optimum.commands import optimum_cli

from pilotfish.exporter import check_bundle
from pilotfish.runtime.cli import optimum_command
from pilotfish.runtime.cli.export import export as export_command

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
    draft = ["--draft", llama, "--draft-linear", "f16", "--draft-vocab", "100"]
    run(monkeypatch, "-m", llama, *draft, "--linear", "int8", "--cache-dtype", "f32", "--no-parity", str(out))
    manifest = check_bundle(out)
    target, draft_model = manifest.models["target"], manifest.models["draft"]
    assert (target.formats.linear, target.formats.embedding, target.cache_dtype) == ("int8", "int8", "f32")
    assert (draft_model.formats.linear, draft_model.formats.lm_head, draft_model.num_logits) == ("f16", "int4", 100)
    assert "target linear: int8, as asked for" in capsys.readouterr().out


def test_has_every_option_of_the_main_command() -> None:
    parser = argparse.ArgumentParser()
    optimum_command.PilotfishExportCommand.parse_args(parser)
    parameters = inspect.signature(export_command).parameters
    parsed = vars(parser.parse_args(["-m", "model", "out"]))
    assert parsed.keys() == parameters.keys()
    defaults = {name: item.default for name, item in parameters.items() if item.default is not inspect.Parameter.empty}
    assert {name: parsed[name] for name in defaults} == defaults


def test_bad_input_is_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, "-m", "./missing", str(tmp_path / "out"))
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: ./missing does not exist"
