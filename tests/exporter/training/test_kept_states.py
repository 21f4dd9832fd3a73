"""States of the target that training keeps instead of computing them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from pilotfish.exporter.training import EagleShape, train
from pilotfish.exporter.training.kept_states import KeptStates
from pilotfish.exporter.training.rows import Row, TokenRows, write_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tiny_training import MakeOptions

    from pilotfish.exporter.training.target import Seen, Target

LENGTH = 12
ROW_BYTES = 3 * LENGTH * 64 * 4  # the last state and two taps in f32
TAPS = (0, 2)


class Counting:
    """Counts the rows that a target looks at."""

    def __init__(self, target: Target) -> None:
        self.embed, self._target, self.num_rows = target.embed, target, 0

    def look(self, token_ids: torch.Tensor, position_ids: torch.Tensor | None, taps: Sequence[int]) -> Seen:
        self.num_rows += len(token_ids)
        return self._target.look(token_ids, position_ids, taps)


@pytest.fixture
def rows(tmp_path: Path) -> TokenRows:
    chooser = np.random.default_rng(0)
    positions = np.concatenate([np.arange(5), np.arange(LENGTH - 5)])
    made = [Row(chooser.integers(5, 60, LENGTH), positions, np.ones(LENGTH, dtype=np.bool_)) for _ in range(4)]
    return write_rows(tmp_path / "rows", made, LENGTH, 62, "test")


@pytest.mark.parametrize(("num_kept", "num_looks"), [(4, 4), (2, 6), (0, 8)])
def test_a_row_is_looked_at_once_where_there_is_room(
    target: Target, rows: TokenRows, num_kept: int, num_looks: int
) -> None:
    counting = Counting(target)
    kept = KeptStates(counting, TAPS, rows, num_kept * ROW_BYTES)  # type: ignore[arg-type]
    for ids in ([0, 1], [1, 2], [3, 0], [2, 3]):
        batch = rows.batch(np.array(ids), torch.device("cpu"))
        found, expected = kept.look(batch), target.look(batch.token_ids, batch.position_ids, TAPS)
        torch.testing.assert_close(found, expected)
    assert counting.num_rows == num_looks


def test_training_on_kept_states_is_the_same_training(make_options: MakeOptions, tmp_path: Path) -> None:
    shape = EagleShape(taps=(0, 1, 2), unroll=2, ffn_size=32, draft_vocab=40)
    fresh, kept = (
        train(make_options(shape=shape, out=tmp_path / name, keep_states_gb=size)).record.history
        for name, size in (("fresh", 0.0), ("kept", 0.1))
    )
    assert [point.loss for point in kept] == pytest.approx([point.loss for point in fresh], rel=1e-4)
