"""A second draft for a merged tree: which positions it is trained on, and that it learns there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from pilotfish.exporter.training import Stage, TrainResult, train
from pilotfish.exporter.training.boost import missed_rows
from pilotfish.exporter.training.draft import read_draft
from pilotfish.exporter.training.errors import DataError
from pilotfish.exporter.training.rows import Row, write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_training import MakeOptions

    from pilotfish.exporter.training.target import Target

STAGES = {"text": Stage(48, 20, 1e-2, 2), "self_text": Stage(48, 0, 1e-3, 0)}


@torch.no_grad()
def test_kept_positions_are_the_misses(target: Target, finished: TrainResult, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    tokens = rng.integers(5, 62, (6, 20))
    scored = rng.random((6, 20)) < 0.7
    positions = np.tile(np.concatenate([np.arange(8), np.arange(12)]), (6, 1))  # two texts in a row
    parts = zip(tokens, positions, scored, strict=True)
    rows = write_rows(tmp_path / "rows", (Row(*part) for part in parts), 20, 62, "mark")
    draft = read_draft(finished.folder, target)
    counted: list[int] = []
    drafts = [(finished.folder, draft)]
    missed = missed_rows(rows, target, drafts, tmp_path / "missed", advance=counted.append)
    assert sum(counted) == 120
    found = missed.batch(np.arange(6), torch.device("cpu"))
    for row in range(6):
        expected = np.zeros(20, dtype=np.bool_)
        for start, end in ((0, 8), (8, 20)):  # each text alone, whole logits
            ids = torch.from_numpy(tokens[row, start:end])[None]
            wanted = target.model(input_ids=ids).logits[0, :, :62].argmax(-1)
            expected[start:end] = (draft(input_ids=ids).logits[0].argmax(-1) != wanted).numpy()
        assert found.scored[row].tolist() == (expected & scored[row]).tolist()
    assert 0 < found.scored.sum() < scored.sum()
    again = missed_rows(rows, target, drafts, tmp_path / "missed", advance=counted.append)
    assert len(again) == 6
    assert sum(counted) == 120  # read, not made again


def test_second_draft_learns_what_the_first_misses(
    make_options: MakeOptions, finished: TrainResult, tmp_path: Path
) -> None:
    result = train(make_options(earlier=(finished.folder,), seed=5, out=tmp_path / "second", **STAGES))
    steps = [point for point in result.record.history if not point.held_out]
    assert steps[-1].greedy > steps[0].greedy + 0.02  # the first one has 0 there
    card = (result.folder / "README.md").read_text()
    assert f"only positions where none of {finished.folder.name} names the target's likeliest token" in card
    assert f"--earlier {finished.folder}" in card


def test_earlier_draft_that_is_none(make_options: MakeOptions, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        train(make_options(earlier=(tmp_path / "nothing",), out=tmp_path / "second", **STAGES))
