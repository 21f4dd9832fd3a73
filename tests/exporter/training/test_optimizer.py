"""Which optimizer gets which weights, and that Muon trains and continues as AdamW does."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file
from tiny_training import HEADS
from torch import nn

from pilotfish.exporter.training import Stage, TimeLimitReached, train
from pilotfish.exporter.training.errors import TrainingOptionError
from pilotfish.exporter.training.optimizer import new_optimizers

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_training import MakeOptions

CPU = torch.device("cpu")
RUN = {"shape": HEADS["eagle3"], "optimizer": "muon", "text": Stage(48, 8, 1e-2, 2), "self_text": Stage(48, 0, 1e-3, 0)}


def test_muon_has_the_matrices_of_hidden_layers_only() -> None:
    module = nn.ModuleDict({"layer": nn.Linear(64, 96), "output": nn.Linear(64, 4096, bias=False)})
    muon, adamw = new_optimizers(module, "muon", CPU, sharded=False)
    assert [tuple(parameter.shape) for parameter in muon.param_groups[0]["params"]] == [(96, 64)]
    decayed, plain = ([tuple(p.shape) for p in group["params"]] for group in adamw.param_groups)
    assert (decayed, plain) == ([(4096, 64)], [(96,)])
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.1, 0.0]


def test_sharded_muon_is_refused() -> None:
    with pytest.raises(TrainingOptionError, match="muon, which needs whole matrices"):
        new_optimizers(nn.Linear(4, 4), "muon", CPU, sharded=True)


def test_muon_trains_and_continues_exactly(make_options: MakeOptions, tmp_path: Path) -> None:
    whole = train(make_options(out=tmp_path / "whole", **RUN))
    steps = [point for point in whole.record.history if not point.held_out]
    assert steps[-1].loss < 0.95 * steps[0].loss
    options = make_options(out=tmp_path / "parts", **RUN)
    with pytest.raises(TimeLimitReached):
        train(dataclasses.replace(options, time_limit_s=1e-3))
    again = train(options)
    expected, found = (load_file(run.folder / "model.safetensors") for run in (whole, again))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert "--optimizer muon" in again.record.command
