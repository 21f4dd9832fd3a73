"""Two data-parallel processes under torchrun against one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pilotfish.exporter.training import DraftShape, EagleShape, Stage, TrainOptions, train
from pilotfish.exporter.training.command import command_line

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_training import MakeOptions


DRAFT = DraftShape(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, ffn_size=32)


def launch(options: TrainOptions) -> None:
    """Runs the command of these options in two processes."""
    flags = [part for line in command_line(options).split(" \\\n  ")[1:] for part in line.split(" ", 1)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    finished = subprocess.run(
        [*torchrun, "-m", "pilotfish.exporter.training", options.kind, *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("shape", [DRAFT, EagleShape(taps=(0, 1, 2), unroll=2, ffn_size=32, draft_vocab=40)])
def test_two_processes_train_as_one(make_options: MakeOptions, tmp_path: Path, shape: DraftShape | EagleShape) -> None:
    text_only, same = Stage(48, 0, 1e-3, 0), {"shape": shape, "text": Stage(48, 10, 1e-2, 2)}
    alone = train(make_options(gradient_accumulation=2, self_text=text_only, out=tmp_path / "alone", **same)).record
    options = make_options(self_text=text_only, out=tmp_path / "both", **same)
    launch(options)
    both = json.loads((options.out / "training.json").read_text())
    assert both["num_processes"] == 2
    assert len(both["history"]) == len(alone.history)
    for point, expected in zip(both["history"], alone.history, strict=True):
        assert point["loss"] == pytest.approx(expected.loss, rel=1e-3)
        assert point["sampled"] == pytest.approx(expected.sampled, abs=1e-3)
        assert point["greedy"] == pytest.approx(expected.greedy, abs=0.02)


def test_two_processes_write_one_text(make_options: MakeOptions, tmp_path: Path) -> None:
    options = make_options(text=Stage(48, 0, 1e-3, 0), out=tmp_path / "both")
    launch(options)
    record = json.loads((options.out / "training.json").read_text())
    assert record["self_written_tokens"] >= 400
    assert [stage["name"] for stage in record["stages"]] == ["self_text"]
