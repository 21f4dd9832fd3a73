"""samples/peers: the engine that is installed here, pilotfish, is measured through the same workers as the others."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import pytest


SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def test_engines_that_are_not_there_are_named(tiny_bundle: Path, tmp_path: Path) -> None:
    program = SAMPLES / "peers" / "compare.py"
    files = ("--html", tmp_path / "page.html", "--json", tmp_path / "peers.json")
    limits = ("--threads", 1, "--prompts", 6, "--new-tokens", 6, "--engines", tmp_path)
    # A GGUF file that is none: nobody opens it, since no other engine is there.
    command = [sys.executable, program, tiny_bundle, "--gguf", tmp_path / "none.gguf", *limits, *files]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "peers.json").read_text())
    names = [entry["name"] for entry in report["engines"]]
    assert names == [f"pilotfish {source}" for source in ("plain", "lookup", "draft", "auto")]
    assert all(entry["same_tokens"] == 1.0 for entry in report["engines"])
    assert report["engines"][0]["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert len(report["left_out"]) == 7
    assert all("not installed" in line for line in report["left_out"])
    assert "Left out: llama_cpp plain" in (tmp_path / "page.html").read_text()


def test_what_cannot_be_done_is_refused_before_the_work(tiny_bundle: Path, tmp_path: Path) -> None:
    program, gguf = SAMPLES / "peers" / "compare.py", tmp_path / "a.gguf"
    gguf.touch()
    for flags, words in (
        (("--prompts", 0), "--prompts is 0, must be at least 1"),
        (("--new-tokens", 1), "--new-tokens is 1, must be at least 2"),
        (("--json", gguf), "which is read"),
        (("--html", tmp_path), "it is a folder"),
    ):
        command = [sys.executable, program, tiny_bundle, "--gguf", gguf, *flags]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def program_of_peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Under a name of its own: the hammer has a module "compare" too."""
    spec = importlib.util.spec_from_file_location("peers_compare", SAMPLES / "peers" / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, program)
    spec.loader.exec_module(program)
    return program


def test_an_engine_that_prints_a_lot_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a pipe holds, and then it answers; all that fail are named, also if nobody is left."""
    peers = program_of_peers(monkeypatch)
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, sys\n"
        'print(json.dumps({"name": "one", "version": "1"}), flush=True)\n'
        "for line in sys.stdin:\n"
        '    sys.stderr.write("x" * 1_000_000)\n'
        "    sys.stderr.flush()\n"
        '    print(json.dumps({"ids": [1, 2], "ttft": 1, "decode": 1}), flush=True)\n'
    )
    monkeypatch.setattr(peers, "WORKERS", tmp_path)
    peer = peers.start(Path(sys.executable), ["worker.py", "gguf", "1", "plain"])
    assert peer.ask([1], 2)["ids"] == [1, 2]
    left = [peer]
    assert peers.measure(left, [[1], [2]], 3) == ["one: it gave 2 of 3 tokens"]
    assert left == []
    peer.process.stdin.close()
    assert peer.process.wait() == 0
