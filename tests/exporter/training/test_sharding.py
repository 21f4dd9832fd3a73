"""Two processes that shard parameters and optimizer against one that does not, and what cannot be sharded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from pilotfish.exporter.training import MedusaShape, Stage, TrainOptions, train
from pilotfish.exporter.training.command import command_line
from pilotfish.exporter.training.passes import Passes, StageData
from pilotfish.exporter.training.rows import Row, split_rows, write_rows
from pilotfish.exporter.training.students.medusa import MedusaStudent
from pilotfish.exporter.training.target import load_target

if TYPE_CHECKING:
    from tiny_training import MakeOptions

SCRIPT = Path(__file__).parents[2] / "sharded_training.py"
MEDUSA = MedusaShape(num_heads=2, num_blocks=1)
RUN = {"shape": MEDUSA, "text": Stage(48, 10, 1e-2, 2), "self_text": Stage(48, 0, 1e-3, 0)}


def launch(options: TrainOptions, *program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    flags = [part for line in command_line(options).split(" \\\n  ")[1:] for part in line.split(" ", 1)]
    if options.time_limit_s is not None:
        flags += ["--time-limit", str(options.time_limit_s)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    fsdp = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*torchrun, *program, options.kind, *flags],
        env={**os.environ, **fsdp, **environment},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_sharded_processes_train_as_one_and_continue_exactly(make_options: MakeOptions, tmp_path: Path) -> None:
    alone = train(make_options(gradient_accumulation=2, out=tmp_path / "alone", **RUN))
    whole, stopped = (make_options(out=tmp_path / name, **RUN) for name in ("whole", "stopped"))
    finished = launch(whole, str(SCRIPT))
    assert finished.returncode == 0, finished.stderr
    found = json.loads((whole.out / "training.json").read_text())
    assert found["num_processes"] == 2
    for point, expected in zip(found["history"], alone.record.history, strict=True):
        assert point["loss"] == pytest.approx(expected.loss, rel=1e-3)
        assert point["greedy"] == pytest.approx(expected.greedy, abs=0.02)
    weights, expected_weights = (load_file(run / "model.safetensors") for run in (whole.out, alone.folder))
    assert weights.keys() == expected_weights.keys()
    assert all(weights[name].shape == tensor.shape for name, tensor in expected_weights.items())

    assert launch(make_options(out=stopped.out, time_limit_s=1e-3, **RUN), str(SCRIPT)).returncode != 0
    assert any((stopped.out / "training").glob("checkpoint-*"))
    finished = launch(stopped, str(SCRIPT))
    assert finished.returncode == 0, finished.stderr
    again = json.loads((stopped.out / "training.json").read_text())
    same = ("stage", "step", "loss", "sampled", "greedy_length")
    assert [[point[key] for key in same] for point in again["history"]] == [
        [point[key] for key in same] for point in found["history"]
    ]
    assert (stopped.out / "model.safetensors").read_bytes() == (whole.out / "model.safetensors").read_bytes()


def test_sharding_that_accelerate_would_leave_out_is_refused(make_options: MakeOptions) -> None:
    finished = launch(make_options(**RUN), "-m", "pilotfish.exporter.training")
    assert finished.returncode != 0
    assert "a launcher asked for sharding, and what it would get is multi_cpu on 2 processes" in finished.stderr


def test_what_sharding_leaves_unwrapped_in_the_end_is_evaluated_in_bf16(target_folder: Path, tmp_path: Path) -> None:
    target = load_target(str(target_folder), None, torch.bfloat16, torch.device("cpu"))
    chooser = np.random.default_rng(0)
    rows = write_rows(tmp_path / "rows", (Row(chooser.integers(5, 60, 48)) for _ in range(4)), 48, 62, "test")
    data = StageData("text", RUN["text"], rows, split_rows(len(rows), 0))  # type: ignore[arg-type]
    student = MedusaStudent(MEDUSA, target, "forward-kl")
    passes = Passes(Accelerator(mixed_precision="bf16", cpu=True), target, student, student, 0)
    assert 0 < passes.held_out(data, 1).mean_loss < np.inf
