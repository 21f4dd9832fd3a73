"""One run at a time in a folder, and what a killed one left there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pilotfish.exporter.errors import OutputExistsError
from pilotfish.exporter.training import train
from pilotfish.exporter.training.distill import WORK
from pilotfish.exporter.training.workspace import check_claim, lock_folder, remove_unfinished

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_training import MakeOptions


def test_a_second_run_is_kept_out_until_the_first_ends(make_options: MakeOptions) -> None:
    options = make_options()
    with lock_folder(options.out / WORK), pytest.raises(OutputExistsError, match="another process trains into"):
        train(options)
    lock_folder(options.out / WORK).close()


def test_a_run_that_was_killed_before_it_said_what_it_is_goes_on(make_options: MakeOptions) -> None:
    options = make_options()
    work = options.out / WORK
    check_claim(options, work)
    lock_folder(work).close()
    (work / "options.json.partial").touch()
    check_claim(options, work)
    (work / "letter.txt").touch()
    with pytest.raises(OutputExistsError, match="not the folder of a training run"):
        check_claim(options, work)


def test_unfinished_files_are_removed(tmp_path: Path) -> None:
    work = tmp_path / WORK
    for folder in (work / "checkpoint.partial", work / "text.partial", tmp_path / "draft.partial", work / "shards"):
        folder.mkdir(parents=True)
    for file in (work / "shards" / "shard-1.npz.partial", work / "options.json", tmp_path / "README.md.partial"):
        file.touch()
    assert remove_unfinished(work) == 5
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["options.json", "shards", WORK]
