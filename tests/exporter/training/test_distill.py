"""A whole run on a tiny target: what it learns and what it leaves."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from pilotfish.exporter.training import train_draft


@pytest.fixture
def result(make_options):
    return train_draft(make_options())


def test_loss_falls_and_acceptance_rises(result):
    steps = [point for point in result.record.history if not point.held_out]
    first, last = steps[0], steps[19]
    assert last.loss < 0.7 * first.loss
    assert last.sampled > first.sampled + 0.15
    assert last.greedy > first.greedy + 0.2


def test_folder_is_read_by_transformers(result):
    model = AutoModelForCausalLM.from_pretrained(result.folder)
    assert model.dtype == torch.float16
    assert model.config.vocab_size == 62
    assert model(input_ids=torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, 62)
    assert json.loads((result.folder / "training.json").read_text())["stages"][0]["name"] == "text"
