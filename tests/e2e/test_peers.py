"""samples/peers: the engine that is installed here, pilotfish, is measured through the same workers as the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
