"""A whole run on a tiny target: what it learns and what it leaves."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tiny_training import MakeOptions, tiny_options
from transformers import AutoModelForCausalLM

from pilotfish.exporter.errors import OutputExistsError
from pilotfish.exporter.options import ModelFormats
from pilotfish.exporter.training import DraftShape, Stage, TrainResult, train
from pilotfish.exporter.training.draft import new_draft, save_draft
from pilotfish.exporter.training.errors import TrainingOptionError

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.training.target import Target


def test_loss_falls_and_acceptance_rises(finished: TrainResult) -> None:
    steps = [point for point in finished.record.history if not point.held_out]
    first, last = steps[0], steps[19]
    assert last.loss < 0.7 * first.loss
    assert last.sampled > first.sampled + 0.15
    assert last.greedy > first.greedy + 0.2


def test_both_stages_ran_and_were_measured(finished: TrainResult) -> None:
    assert [(stage.name, stage.steps) for stage in finished.record.stages] == [("text", 20), ("self_text", 6)]
    held_out = [(point.stage, point.step) for point in finished.record.history if point.held_out]
    assert held_out == [("text", 10), ("text", 20), ("self_text", 6)]
    assert finished.record.self_written_tokens >= 400


def test_folder_is_read_by_transformers(finished: TrainResult) -> None:
    model = AutoModelForCausalLM.from_pretrained(finished.folder)
    assert model.dtype == torch.float16
    assert model.config.vocab_size == 62  # the tokenizer's; the target's two rows of padding are left out
    assert model(input_ids=torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, 62)
    assert json.loads((finished.folder / "training.json").read_text())["trained_parameters"] == model.num_parameters()


def test_finished_run_is_recognised(
    finished: TrainResult, target_folder: Path, text_file: Path, prompts_file: Path
) -> None:
    options = tiny_options(
        target=target_folder,
        data=text_file,
        out=finished.folder,
        evaluation_prompts=prompts_file,
        evaluation_tokens=24,
    )
    again = train(options)
    assert again.record.stages == finished.record.stages
    assert again.record.history == finished.record.history


@pytest.mark.parametrize("loss", ["reverse-kl", "total-variation"])
def test_other_losses_learn(make_options: MakeOptions, loss: str) -> None:
    stages = {"text": Stage(48, 12, 1e-2, 2), "self_text": Stage(48, 0, 1e-3, 0)}
    steps = [point for point in train(make_options(loss=loss, **stages)).record.history if not point.held_out]
    assert steps[-1].loss < steps[0].loss
    assert steps[-1].sampled > steps[0].sampled


def test_quantised_target_is_another_target(make_options: MakeOptions, finished: TrainResult) -> None:
    result = train(make_options(target_formats=ModelFormats("int4", "int8", "int8")))
    assert result.record.history[0].loss != finished.record.history[0].loss
    assert "int4" in (result.folder / "README.md").read_text()


def test_initial_is_where_training_starts(make_options: MakeOptions, finished: TrainResult) -> None:
    options = make_options(initial=finished.folder, self_text=Stage(48, 0, 1e-3, 0))
    first = train(options).record.history[0]
    assert first.sampled > finished.record.history[0].sampled + 0.1


def test_deeper_draft_begins_as_the_same_function(finished: TrainResult, target: Target) -> None:
    ids = torch.arange(5, 25)[None]
    deeper = DraftShape(hidden_size=32, num_layers=3, num_heads=2, num_kv_heads=1, ffn_size=32)
    shape = dataclasses.replace(deeper, num_layers=1)
    expected, found = (new_draft(each, target, 7, finished.folder)(ids).logits for each in (shape, deeper))
    torch.testing.assert_close(found, expected)


def test_initial_of_another_width_is_refused(make_options: MakeOptions, finished: TrainResult) -> None:
    shape = DraftShape(hidden_size=64, num_layers=1, num_heads=2, num_kv_heads=1, ffn_size=32)
    with pytest.raises(TrainingOptionError, match=r"embed_tokens\.weight is \[62, 32\]"):
        train(make_options(initial=finished.folder, shape=shape))


def test_initial_with_more_layers_is_refused(target: Target, tmp_path: Path) -> None:
    shape = DraftShape(hidden_size=32, num_layers=2, num_heads=2, num_kv_heads=1, ffn_size=32)
    save_draft(new_draft(shape, target, 0, None), tmp_path)
    with pytest.raises(TrainingOptionError, match=r"no place for, such as model\.layers\.1"):
        new_draft(dataclasses.replace(shape, num_layers=1), target, 0, tmp_path)


def test_early_stop_ends_a_stage(make_options: MakeOptions) -> None:
    # a learning rate of nearly nothing: no evaluation is better than the first by more than rounding
    stage = Stage(48, 40, 1e-12, 0)
    options = make_options(text=stage, self_text=Stage(48, 0, 1e-3, 0), evaluate_every=2, patience=2)
    record = train(options).record
    assert len(record.stopped_early) == 1
    assert record.stopped_early[0].startswith("text after step")


def test_best_weights_are_kept(make_options: MakeOptions) -> None:
    # the second half destroys what the first half learned
    options = make_options(text=Stage(48, 12, 0.9, 11), self_text=Stage(48, 0, 1e-3, 0), evaluate_every=1, patience=99)
    record = train(options).record
    best = max(point.sampled for point in record.history if point.held_out)
    assert record.history[-1].sampled < best
    assert record.stages[0].held_out.sampled == pytest.approx(best, abs=1e-6)


def test_foreign_folder_is_not_touched(make_options: MakeOptions, tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="is not the folder of a training run"):
        train(make_options())
    assert [path.name for path in (tmp_path / "draft").iterdir()] == ["thesis.txt"]


def test_weights_are_those_of_the_last_evaluation(finished: TrainResult) -> None:
    model = AutoModelForCausalLM.from_pretrained(finished.folder)
    assert all(np.isfinite(tensor.float().numpy()).all() for tensor in model.state_dict().values())
