"""Kernels of every instruction set give the portable ones' bits for every format and every attention shape."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DIGESTS = Path(__file__).resolve().parents[1] / "reference" / "op_digests.py"


def run_digests(library: str, instruction_set: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DIGESTS), library],
        env=os.environ | {"PILOTFISH_CPU": instruction_set},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def portable(library: str) -> list[str]:
    done = run_digests(library, "portable")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 140
    return lines


@pytest.mark.parametrize("instruction_set", ["avx2", "avx512vnni", "neon", "dotprod", "i8mm"])
def test_same_bits_as_portable(library: str, portable: list[str], instruction_set: str) -> None:
    done = run_digests(library, instruction_set)
    if "this processor runs" in done.stderr:
        pytest.skip(f"this processor lacks {instruction_set}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == portable


def test_unknown_instruction_set_is_refused(library: str) -> None:
    done = run_digests(library, "sse9")
    assert done.returncode != 0
    assert "PILOTFISH_CPU=sse9: this processor runs" in done.stderr
