"""Rows on disk and the order in which training reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from pilotfish.exporter.training.errors import DataError
from pilotfish.exporter.training.rows import Row, StepOrder, TokenRows, existing_rows, split_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CPU = torch.device("cpu")


def test_plain_rows_come_back(tmp_path: Path) -> None:
    tokens = np.arange(12).reshape(3, 4)
    rows = write_rows(tmp_path / "rows", (Row(row) for row in tokens), 4, 100, "mark")
    batch = TokenRows(tmp_path / "rows").batch(np.array([2, 0]), CPU)
    assert rows.tokens.dtype == np.uint16
    assert batch.token_ids.tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    assert batch.position_ids is None
    assert batch.scored.all()


def test_large_vocabulary_needs_four_bytes(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows", [Row(np.array([70_000, 1]))], 2, 128_000, "mark")
    assert rows.batch(np.array([0]), CPU).token_ids.tolist() == [[70_000, 1]]


def test_segmented_rows_come_back(tmp_path: Path) -> None:
    row = Row(np.array([5, 6, 7]), np.array([0, 1, 0]), np.array([True, False, True]))
    batch = write_rows(tmp_path / "rows", [row], 3, 100, "mark").batch(np.array([0]), CPU)
    assert batch.position_ids is not None
    assert batch.position_ids.tolist() == [[0, 1, 0]]
    assert batch.scored.tolist() == [[True, False, True]]


def test_rows_of_other_text_are_not_taken(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", [Row(np.array([1, 2]))], 2, 100, "mark")
    assert existing_rows(tmp_path / "rows", "mark") is not None
    assert existing_rows(tmp_path / "rows", "another") is None


def test_truncated_rows_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", [Row(np.array([1, 2]))], 2, 100, "mark")
    (tmp_path / "rows" / "tokens.bin").write_bytes(b"x")
    with pytest.raises(DataError, match="delete it to make them again"):
        existing_rows(tmp_path / "rows", "mark")


def test_failed_writing_leaves_no_rows(tmp_path: Path) -> None:
    def breaks() -> Iterator[Row]:
        yield Row(np.array([1, 2]))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_rows(tmp_path / "rows", breaks(), 2, 100, "mark")
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(("count", "held_out"), [(2, 1), (99, 1), (1000, 10), (100_000, 64)])
def test_split_shares_no_row(count: int, held_out: int) -> None:
    split = split_rows(count, seed=3)
    assert len(split.held_out) == held_out
    assert sorted([*split.train, *split.held_out]) == list(range(count))


def test_one_row_cannot_be_split() -> None:
    with pytest.raises(DataError, match="there is 1 row"):
        split_rows(1, seed=0)


def test_an_epoch_reads_every_row_once_and_the_next_in_another_order() -> None:
    row_ids = np.arange(100, 112)
    order = StepOrder(row_ids, 4, seed=5, what="text")
    epochs = [np.concatenate([order.rows_of(step) for step in range(first, first + 3)]) for first in (0, 3)]
    assert [sorted(epoch) for epoch in epochs] == [list(row_ids)] * 2
    assert epochs[0].tolist() != epochs[1].tolist()


def test_order_depends_on_step_and_seed_alone() -> None:
    forwards, backwards = (StepOrder(np.arange(50), 7, seed=1, what="text") for _ in range(2))
    there = [forwards.rows_of(step).tolist() for step in range(20)]
    back = [backwards.rows_of(step).tolist() for step in reversed(range(20))]
    assert there == back[::-1]
    assert StepOrder(np.arange(50), 7, seed=2, what="text").rows_of(0).tolist() != there[0]
