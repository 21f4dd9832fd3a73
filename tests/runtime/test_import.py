"""Importing pilotfish is cheap: neither torch nor ONNX Runtime's Python module comes along."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = ("torch", "transformers", "onnx", "onnxruntime", "optimum")


def heavy_modules(code: str) -> list[str]:
    """Top-level modules of HEAVY that are loaded after ``code`` ran in a fresh interpreter."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    return [name for name in json.loads(printed.splitlines()[-1]) if name in HEAVY]


def test_the_facade_loads_no_framework() -> None:
    assert heavy_modules("from pilotfish import Engine") == []


def test_the_command_line_loads_no_framework() -> None:
    assert heavy_modules("import pilotfish.runtime.cli") == []


def test_generating_loads_no_framework(tiny_bundle: Path) -> None:
    code = f"from pilotfish import Engine\nEngine({str(tiny_bundle)!r}, threads=1).generate('hello', max_new_tokens=4)"
    assert heavy_modules(code) == []
