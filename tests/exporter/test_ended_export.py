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

DEADLINE_SECONDS = 240  # an export imports and traces first, on a busy machine for minutes


def default_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
def test_a_signal_ends_an_export_without_a_trace(
    family_checkpoints: dict[str, Path], tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    end(family_checkpoints["llama"], tmp_path / "out", number, exit_code, began="*")


def test_a_signal_ends_a_calibration_without_a_trace(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"Line {index}: a number is {index * index}.\n" for index in range(400)), encoding="utf-8")
    options = ("--calibration", str(text))
    end(family_checkpoints["llama"], tmp_path / "out", signal.SIGINT, 130, *options, began=".*.partial/*.calibrated")


def end(checkpoint: Path, out: Path, number: signal.Signals, exit_code: int, *options: str, began: str) -> None:
    """Sends a signal to an export once there is a path in `out` that looks like `began`."""
    out.mkdir()
    program = "from pilotfish.runtime.cli import main; main()"
    command = [sys.executable, "-c", program, "export", str(checkpoint), "--out", str(out / "bundle"), *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=default_signals,  # noqa: PLW1509 - no other threads here
    )
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not any(out.glob(began)):
            assert process.poll() is None, "the export ended by itself"
            assert time.monotonic() < deadline, "the export wrote nothing"
            time.sleep(0.005)
        process.send_signal(number)
        if number == signal.SIGTERM:
            process.send_signal(number)  # as `timeout` does
        assert process.wait(DEADLINE_SECONDS) == exit_code
    finally:
        process.kill()
    assert not any(out.iterdir())
