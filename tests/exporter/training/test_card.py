"""What the training card says."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.training import TrainResult


@pytest.fixture
def card(finished: TrainResult) -> str:
    return (finished.folder / "README.md").read_text()


def test_names_the_command_seed_and_versions(card: str, finished: TrainResult) -> None:
    assert finished.record.command in card
    assert "--evaluation-tokens 24" in finished.record.command
    assert "Seed 0; python 3" in card
    for name in ("torch", "transformers", "accelerate"):
        assert f"{name} {finished.record.versions[name]}" in card


def test_names_data_with_licence_and_hash(card: str, text_file: Path) -> None:
    digest = hashlib.sha256(text_file.read_bytes()).hexdigest()
    assert f"| words.txt | {text_file.stat().st_size} | CC0-1.0 | `{digest}` |" in card
    assert "text and conversations that share a run of 20 tokens with an evaluation prompt were left out" in card


def test_names_device_and_time(card: str, finished: TrainResult) -> None:
    assert " on CPU (" in card
    record = json.loads((finished.folder / "training.json").read_text())  # a repeated call has added its time to both
    for phase in ("tokenising", "writing by the target", "training", "evaluation"):
        assert f"* {phase}: {record['seconds'][phase]:.0f} s" in card
    assert f"{finished.record.flops:.1e} floating-point operations" in card


def test_shows_final_numbers(card: str, finished: TrainResult) -> None:
    for stage in finished.record.stages:
        scores = stage.held_out
        assert f"| {stage.name} | {scores.num_tokens} | {stage.held_out_loss:.3f} | {scores.sampled:.3f} |" in card
    for row in finished.record.prompts:
        assert f"| {row.category} | {row.num_prompts} | {row.num_tokens} | {row.agreement:.3f} |" in card
    assert [row.category for row in finished.record.prompts] == ["chat", "code", "all"]


def test_front_matter_names_the_target(card: str, finished: TrainResult) -> None:
    assert card.startswith(f"---\nlicense: other\nbase_model: {finished.record.target_id}\n")


def test_curves_are_a_png_of_some_size(card: str, finished: TrainResult) -> None:
    assert "](curves.png)" in card
    content = (finished.folder / "curves.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width > 1000
    assert height > 300


def test_record_holds_the_curves(finished: TrainResult) -> None:
    record = json.loads((finished.folder / "training.json").read_text())
    assert len(record["history"]) == len(finished.record.history)
    assert record["history"][0]["loss"] == finished.record.history[0].loss
    assert record["options"]["shape"]["hidden_size"] == 32
