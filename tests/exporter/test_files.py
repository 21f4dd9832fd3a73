"""The output folder: whole or not there, and what it replaces is not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.exporter.files import new_folder


def write(out: Path, text: str) -> None:
    with new_folder(out) as folder:
        (folder / "file").write_text(text)


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

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        write(out, "new")
    assert (out / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]
