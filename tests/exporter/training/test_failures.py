"""Bad data, a diverging loss and a full disk: clear errors, and nothing lost."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
import torch
from accelerate import Accelerator
from tiny_training import MakeOptions, save_target

from pilotfish.exporter.training import Stage, TrainingError, train
from pilotfish.exporter.training.errors import DataError, DivergedError, StorageError, TrainingOptionError
from pilotfish.exporter.training.storage import storage_errors

if TYPE_CHECKING:
    from pathlib import Path

TEXT_ONLY = Stage(48, 0, 1e-3, 0)


def test_text_smaller_than_a_batch(make_options: MakeOptions, tmp_path: Path) -> None:
    (tmp_path / "small.txt").write_text("w1 w2 w3 " * 100)
    with pytest.raises(DataError, match=r"the text stage has 5 rows for training; one step reads 12"):
        train(make_options(data=tmp_path / "small.txt", self_text=TEXT_ONLY))


def test_text_smaller_than_a_row(make_options: MakeOptions, tmp_path: Path) -> None:
    (tmp_path / "tiny.txt").write_text("w1 w2")
    with pytest.raises(DataError, match="does not fill one row of 48 tokens"):
        train(make_options(data=tmp_path / "tiny.txt"))


def test_self_written_text_smaller_than_a_batch(make_options: MakeOptions) -> None:
    options = make_options(batch_tokens=48 * 200, text=Stage(48, 0, 1e-3, 0))
    with pytest.raises(DataError, match=r"the self_text stage has .* one step reads 200"):
        train(options)


def test_missing_data(make_options: MakeOptions, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere does not exist"):
        train(make_options(data=tmp_path / "nowhere"))


def test_target_without_chat_template(make_options: MakeOptions, tmp_path: Path) -> None:
    folder = save_target(tmp_path / "base", template=None)
    with pytest.raises(TrainingOptionError, match="no chat template"):
        train(make_options(target=str(folder)))
    assert train(make_options(target=str(folder), self_text=TEXT_ONLY, out=tmp_path / "text")).record.stages


def test_nan_names_the_step(make_options: MakeOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    from pilotfish.exporter.training import losses

    calls = []

    def breaks_later(log_p: torch.Tensor, log_q: torch.Tensor) -> losses.Divergence:
        calls.append(None)
        scale = torch.nan if len(calls) == 4 else 1.0
        values, gradient = losses.forward_kl(log_p, log_q)
        return losses.Divergence(values * scale, gradient)

    monkeypatch.setitem(losses.DIVERGENCES, "reverse-kl", breaks_later)
    with pytest.raises(DivergedError, match="the loss is nan at step 4 of the text stage"):
        train(make_options(loss="reverse-kl", self_text=TEXT_ONLY))


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_keeps_the_last_checkpoint(
    make_options: MakeOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = train(make_options(self_text=TEXT_ONLY, out=tmp_path / "whole"))
    options = make_options(self_text=TEXT_ONLY)
    save_state, saves = Accelerator.save_state, []

    def fails_later(self: Accelerator, folder: str, **options: bool) -> None:
        saves.append(folder)
        if len(saves) == 3:
            full_disk()
        save_state(self, folder, **options)

    monkeypatch.setattr(Accelerator, "save_state", fails_later)
    with pytest.raises(StorageError, match=r"the disk is full while writing .*run the same command to continue"):
        train(options)
    names = [path.name for path in sorted((options.out / "training").glob("checkpoint-*"))]
    assert names == ["checkpoint-00000005", "checkpoint-00000010"]
    monkeypatch.undo()
    continued = train(options)
    assert [point.loss for point in continued.record.history] == [point.loss for point in whole.record.history]


def test_really_full_disk(make_options: MakeOptions, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        with pytest.raises(StorageError, match="the disk is full while writing"):
            train(make_options(out=disk / "draft", self_text=TEXT_ONLY))
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        assert train(make_options(out=disk / "draft", self_text=TEXT_ONLY)).record.stages
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_torch_and_safetensors_errors_are_storage_errors(tmp_path: Path) -> None:
    from safetensors import SafetensorError

    for error in (
        RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        PermissionError(errno.EACCES, "Permission denied"),
    ):
        with pytest.raises(StorageError), storage_errors(tmp_path):
            raise error


def test_other_runtime_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shapes") as caught, storage_errors(tmp_path):
        raise RuntimeError("shapes do not fit")
    assert not isinstance(caught.value, TrainingError)
