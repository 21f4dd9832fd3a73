"""samples/device_report.sh: doctor, plan, verify and bench in one page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "samples" / "device_report.sh"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", PROGRAM, *arguments]
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=os.environ | {"PATH": path}
    )


@pytest.mark.slow
def test_one_page_has_what_four_commands_found(tiny_bundle: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(tiny_bundle, page, "--threads", 1)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    for words in ("Speed", "Lossless?", "Memory plan of the whole context", "What is installed", "libpilotfish"):
        assert words in text
    assert "NOT lossless" not in text


def test_a_bundle_that_is_none_ends_it(tmp_path: Path) -> None:
    done = run(tmp_path, tmp_path / "page.html")
    assert done.returncode == 2
    assert "manifest.json" in done.stderr
    assert not (tmp_path / "page.html").exists()
    assert run().returncode == 2


def test_a_page_that_cannot_be_written_ends_it_before_the_work(tmp_path: Path) -> None:
    for page, words in ((tmp_path, "it is a folder"), ("--threads", "options come after the page")):
        done = run(tmp_path / "no bundle", page)
        assert (done.returncode, words in done.stderr, done.stdout) == (2, True, "")
