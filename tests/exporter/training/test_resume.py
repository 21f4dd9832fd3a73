"""A killed run continues exactly; a time limit loses nothing; another run's folder is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from pilotfish.exporter.training import Stage, TimeLimitReached, train
from pilotfish.exporter.training.command import command_line
from pilotfish.exporter.training.errors import ResumeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tiny_training import MakeOptions

    from pilotfish.exporter.training.options import TrainOptions
    from pilotfish.exporter.training.state import Measurement

LONG_TEXT = Stage(length=48, steps=60, learning_rate=1e-2, warmup_steps=2)


def curve(history: tuple[Measurement, ...]) -> list[tuple[str, int, float, float, float]]:
    return [(point.stage, point.step, point.loss, point.sampled, point.greedy_length) for point in history]


def start(options: TrainOptions) -> subprocess.Popen[bytes]:
    flags = [part for line in command_line(options).split(" \\\n  ")[1:] for part in line.split(" ", 1)]
    return subprocess.Popen(
        [sys.executable, "-m", "pilotfish.exporter.training", "draft", *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as in this process: sums depend on the number of threads
        stderr=subprocess.PIPE,
    )


def kill_when(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    """SIGKILL as soon as the condition holds; the process must still be running then."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_killed_run_repeats_the_same_curve(make_options: MakeOptions, tmp_path: Path) -> None:
    whole = train(make_options(text=LONG_TEXT, out=tmp_path / "whole"))
    options = make_options(text=LONG_TEXT, out=tmp_path / "killed")
    work = options.out / "training"
    kill_when(start(options), lambda: any(work.glob("self_text_shards/*.npz")))
    kill_when(start(options), lambda: any(work.glob("checkpoint-*5")))
    assert not (options.out / "training.json").exists()
    continued = train(options)
    assert curve(continued.record.history) == curve(whole.record.history)  # bit for bit
    assert (options.out / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()


def test_time_limit_stops_and_the_same_call_continues(make_options: MakeOptions, tmp_path: Path) -> None:
    whole = train(make_options(out=tmp_path / "whole"))
    options = make_options(out=tmp_path / "limited")
    limited = make_options(out=tmp_path / "limited", time_limit_s=1e-3)
    with pytest.raises(TimeLimitReached, match="while the target writes"):
        train(limited)
    train(make_options(out=tmp_path / "other"))  # an unrelated run in between changes nothing
    assert curve(train(options).record.history) == curve(whole.record.history)


def test_time_limit_during_training(make_options: MakeOptions) -> None:
    stage = {"self_text": Stage(48, 0, 1e-3, 0)}
    with pytest.raises(TimeLimitReached, match="after step 1 of the text stage"):
        train(make_options(time_limit_s=1e-3, **stage))
    with pytest.raises(TimeLimitReached, match="after step 2 of the text stage"):
        train(make_options(time_limit_s=1e-3, **stage))


def test_other_options_are_refused_by_name(make_options: MakeOptions) -> None:
    with pytest.raises(TimeLimitReached):
        train(make_options(time_limit_s=1e-3))
    with pytest.raises(ResumeError, match="seed was 0, now 1"):
        train(make_options(seed=1))


def test_damaged_checkpoint_names_the_remedy(make_options: MakeOptions) -> None:
    options = make_options(self_text=Stage(48, 0, 1e-3, 0), time_limit_s=1e-3)
    for _ in range(2):
        with pytest.raises(TimeLimitReached):
            train(options)
    last = max((options.out / "training").glob("checkpoint-*"))
    weights = last / "pytorch_model.bin"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ResumeError, match="delete it to continue from the one before"):
        train(options)
