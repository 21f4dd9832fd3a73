"""Killed at any moment, without memory or room: there is the old bundle, the new one or none, and the next works."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch
from prepared_exporter import FAULT, REFUSED, PreparedExporter
from tiny_training import WORDS, save_target

from pilotfish.exporter import check_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUM_MOMENTS = 20
OLD, NEW = 64, 128  # positions: what tells the bundles apart
# Of two layers' q, k, v, o, gate, up and down, 64 columns each, in int4.
CALIBRATED_BYTES = 2 * (64 + 32 + 32 + 64 + 3 * 64) * 64 * 9 // 16


@pytest.fixture(scope="module")
def prepared(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreparedExporter]:
    process = PreparedExporter(target, tmp_path_factory.mktemp("log") / "children.txt")
    yield process
    process.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(save_target(tmp_path_factory.mktemp("target")))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    chooser = random.Random(3)  # text, not a secret
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("\n".join(" ".join(chooser.choices(WORDS, k=12)) for _ in range(200)))
    return str(path)


def positions(bundle: Path) -> int | None:
    """Of a bundle whose every file has the right hash; None if there is no folder."""
    return check_bundle(bundle).models["target"].max_positions if bundle.exists() else None


def test_an_export_that_is_killed(prepared: PreparedExporter, target: str, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    seconds = prepared.call("export", target=target, out=str(tmp_path / "first"), max_positions=OLD).seconds
    seen = set()
    for moment in range(NUM_MOMENTS):
        if moment == NUM_MOMENTS // 2:  # from here on a bundle is replaced
            assert prepared.call("export", target=target, out=str(out), max_positions=OLD).code == 0
        after = seconds * (moment % (NUM_MOMENTS // 2) + 0.5) / (NUM_MOMENTS // 2)
        ended = prepared.call("export", kill_after=after, target=target, out=str(out), max_positions=NEW)
        assert ended.was_killed or ended.code == 0, ended.error
        seen.add(ended.was_killed)
        assert positions(out) in ((None, NEW) if moment < NUM_MOMENTS // 2 else (OLD, NEW))
    assert True in seen
    assert prepared.call("export", target=target, out=str(out), max_positions=NEW).code == 0
    assert positions(out) == NEW
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "first"]


def test_a_training_run_that_is_killed(prepared: PreparedExporter, target: str, text: str, tmp_path: Path) -> None:
    given = {"target": target, "data": text}
    whole = prepared.call("train", out=str(tmp_path / "whole"), **given)
    assert whole.code == 0, whole.error
    run, num_runs, kills = tmp_path / "run0", 0, 0
    for moment in range(NUM_MOMENTS):  # each goes on where the one before was killed
        ended = prepared.call("train", kill_after=whole.seconds * (moment + 0.5) / NUM_MOMENTS, out=str(run), **given)
        assert ended.was_killed or ended.code == 0, ended.error
        kills += ended.was_killed
        if ended.code == 0:
            assert_finished(run, tmp_path / "whole")
            num_runs += 1
            run = tmp_path / f"run{num_runs}"
    assert kills > NUM_MOMENTS // 4
    ended = prepared.call("train", out=str(run), **given)
    assert ended.code == 0, ended.error
    assert_finished(run, tmp_path / "whole")


def assert_finished(run: Path, whole: Path) -> None:
    """The files and the weights are those of a run that nothing ended."""
    assert {path.name for path in run.iterdir()} == {path.name for path in whole.iterdir()}
    assert not list(run.rglob("*.partial"))
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.parametrize("spare", [0, 1 << 20, 8 << 20, 32 << 20])
def test_an_export_without_memory(prepared: PreparedExporter, target: str, spare: int, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    ended = prepared.call("export", limits={"RLIMIT_AS": spare}, target=target, out=str(out), max_positions=NEW)
    assert ended.code != FAULT, ended.error
    if ended.code == REFUSED:
        assert ended.error.startswith("OutOfMemoryError: exporting"), ended.error
    assert (positions(out) is None) == (ended.code != 0)
    assert prepared.call("export", target=target, out=str(out), max_positions=NEW).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.parametrize("room", [0, 1000, 20_000])
def test_an_export_onto_a_full_disk(prepared: PreparedExporter, target: str, room: int, tmp_path: Path) -> None:
    given = {"target": target, "out": str(tmp_path / "bundle"), "max_positions": NEW}
    ended = prepared.call("export", limits={"RLIMIT_FSIZE": room}, **given)
    assert ended.code == REFUSED, ended.error
    assert ended.error.startswith("OutputFullError: the disk is full while writing"), ended.error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("room", [CALIBRATED_BYTES // 4, CALIBRATED_BYTES - 1])
def test_a_calibration_onto_a_full_disk(
    prepared: PreparedExporter, target: str, text: str, room: int, tmp_path: Path
) -> None:
    """Room for the tokenizer, which is written before, but not for all integers that were found."""
    given = {"target": target, "out": str(tmp_path / "bundle"), "max_positions": NEW, "calibration": text}
    ended = prepared.call("export", limits={"RLIMIT_FSIZE": room}, **given)
    assert ended.code == REFUSED, ended.error
    assert ended.error.startswith("OutputFullError: the disk is full while writing"), ended.error
    assert not list(tmp_path.iterdir())
    assert prepared.call("export", **given).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert not list((tmp_path / "bundle").glob("*.calibrated"))


@pytest.mark.parametrize("room", [0, 1000, 20_000])
def test_a_training_run_onto_a_full_disk(
    prepared: PreparedExporter, target: str, text: str, room: int, tmp_path: Path
) -> None:
    given = {"target": target, "data": text, "out": str(tmp_path / "run")}
    ended = prepared.call("train", limits={"RLIMIT_FSIZE": room}, **given)
    assert ended.code == REFUSED, ended.error
    assert ended.error.startswith("StorageError"), ended.error
    ended = prepared.call("train", **given)
    assert ended.code == 0, ended.error
