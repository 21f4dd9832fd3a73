"""The output folder: whole or not there, and what it replaces is not lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pilotfish.exporter import output_folder
from pilotfish.exporter.errors import OptionError, OutputExistsError
from pilotfish.exporter.output_folder import check_output, new_folder, remove_abandoned


def write(out: Path, text: str) -> None:
    with new_folder(out, overwrite=True) as folder:
        fill(folder, text)


def fill(folder: Path, text: str) -> None:
    (folder / "file").write_text(text)
    (folder / "manifest.json").touch()


@pytest.fixture(params=["in one step", "in steps"])
def exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that exchange two folders in one step, and those that do not."""
    if request.param == "in steps":
        monkeypatch.setattr(output_folder, "_exchange", output_folder._exchange_in_steps)


@pytest.mark.usefixtures("exchange")
def test_a_folder_is_replaced_whole_also_behind_a_link(tmp_path: Path) -> None:
    out, link = tmp_path / "out", tmp_path / "link"
    write(out, "old")
    link.symlink_to(out)
    write(link, "new")
    assert link.is_symlink()
    assert (out / "file").read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [link, out]


def test_the_old_folder_comes_back_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write(out, "old")
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.suffix == ".partial":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(output_folder, "_exchange", output_folder._exchange_in_steps)
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        write(out, "new")
    assert (out / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_of_two_at_once_one_succeeds(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(OutputExistsError, match=r"out exists; choose another folder"):  # noqa: PT012, SIM117 - at once
        with new_folder(out, overwrite=False) as slower:
            fill(slower, "slower")
            with new_folder(out, overwrite=False) as faster:
                fill(faster, "faster")
    assert (out / "file").read_text() == "faster"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.usefixtures("exchange")
def test_of_two_that_may_replace_the_last_one_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with new_folder(out, overwrite=True) as slower:
        fill(slower, "slower")
        write(out, "faster")
        assert (out / "file").read_text() == "faster"
    assert (out / "file").read_text() == "slower"
    assert list(tmp_path.iterdir()) == [out]


def killed_in(out: Path) -> None:
    """A process that is killed while it makes `out`."""
    child = os.fork()
    if child == 0:
        with new_folder(out, overwrite=True) as folder:
            fill(folder, "half")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_what_a_killed_export_left_is_removed_and_what_a_living_one_makes_is_not(tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed_in(out)
    killed_in(out)
    (left,) = {path.suffix for path in tmp_path.iterdir()} - {".lock"}
    assert left == ".partial"
    with new_folder(out, overwrite=False) as living:
        fill(living, "living")
        said = remove_abandoned(out)
        assert len(said) == 2
        assert all("which an export that was killed had left" in line for line in said)
        assert remove_abandoned(out) == []
    assert (out / "file").read_text() == "living"
    assert list(tmp_path.iterdir()) == [out]


def test_a_bundle_that_was_moved_aside_goes_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")
    killed_in(out)
    (partial,) = tmp_path.glob(".out.*.partial")
    out.rename(partial.with_suffix(".old"))  # where a file system cannot exchange, and the kill comes between two steps
    assert remove_abandoned(out)[0].startswith(f"put {out} back")
    assert (out / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_folders_of_other_names_are_left_alone(tmp_path: Path) -> None:
    for name in ("other", "out.more", "ou"):
        killed_in(tmp_path / name)
    before = sorted(tmp_path.iterdir())
    assert remove_abandoned(tmp_path / "out") == []
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["a" * 240, "a" * 300, "b/" * 3000, "\udcff", "null\0", "loop/out"])
def test_a_path_that_cannot_be(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for refuse in (lambda: check_output(tmp_path / name, overwrite=False), lambda: remove_abandoned(tmp_path / name)):
        with pytest.raises(OptionError, match=r"cannot be made.*choose another path"):
            refuse()
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]
