"""An export that a signal ends leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_SECONDS = 60


def default_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
def test_a_signal_ends_an_export_without_a_trace(
    family_checkpoints: dict[str, Path], tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    program = "from pilotfish.runtime.cli import main; main()"
    command = [sys.executable, "-c", program, "export", str(family_checkpoints["llama"]), "--out", str(out / "bundle")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=default_signals,  # noqa: PLW1509 - no other threads here
    )
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not any(out.iterdir()):
        assert process.poll() is None, "the export ended by itself"
        assert time.monotonic() < deadline, "the export wrote nothing"
        time.sleep(0.005)
    process.send_signal(number)
    if number == signal.SIGTERM:
        process.send_signal(number)  # as `timeout` does
    assert process.wait(DEADLINE_SECONDS) == exit_code
    assert not any(out.iterdir())
