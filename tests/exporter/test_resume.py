"""What an export has packed before it was killed is kept by the next one, if it is what that would write."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tiny_adapters import pair, save_adapter
from tiny_models import save_model, tiny_config

from pilotfish.exporter import ExportOptions, NoProgress, export
from pilotfish.exporter.weights_file import WeightsFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = ExportOptions(parity=False)
ARRAYS = {"a": np.arange(5000, dtype=np.uint8), "b": np.arange(6, dtype=np.float32), "c": np.ones(3, np.uint8)}


def unasked() -> Iterator[np.ndarray]:
    raise AssertionError("a tensor that is kept is not made again")
    yield


def write(path: Path, content: str | None, num_tensors: int = len(ARRAYS)) -> int:
    """Returns how many tensors were kept."""
    with WeightsFile(path, content) as file:
        for index, (name, array) in enumerate(list(ARRAYS.items())[:num_tensors]):
            stored = file.add(name, unasked() if index < file.num_kept else iter([array]))
            assert (stored.name, stored.bytes, stored.offset % 4096) == (name, array.nbytes, 0)
        return file.num_kept


def test_a_weights_file_goes_on_behind_what_it_has(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.bin", tmp_path / "x.bin"
    assert write(whole, "same") == 0
    assert write(path, "same", num_tensors=2) == 0
    with path.open("ab") as file:
        file.write(b"half of the third")
    assert write(path, "same") == 2
    assert path.read_bytes() == whole.read_bytes()
    assert write(path, "same") == 3


def test_a_damaged_tensor_and_those_behind_it_are_written_anew(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.bin", tmp_path / "x.bin"
    write(whole, "same")
    for name, num_kept in (("a", 0), ("b", 1), ("c", 2)):
        write(path, "same")
        entries = [json.loads(line) for line in path.with_suffix(".journal").read_text().splitlines()[1:]]
        place = next(entry["offset"] for entry in entries if entry["name"] == name)
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)
        assert write(path, "same") == num_kept
        assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("end", ["", '{"name": "c"', "[]", '{"sha256": "", "shape": 3}', "\x00"])
def test_a_journal_that_ends_in_the_middle_of_a_line(end: str, tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write(path, "same")
    journal = path.with_suffix(".journal")
    journal.write_text("\n".join([*journal.read_text().splitlines()[:3], end]))
    assert write(path, "same") == 2


def test_what_was_made_of_other_things_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write(path, "same")
    assert write(path, "other") == 0
    path.unlink()
    assert write(path, "other") == 0
    assert write(path, None) == 0


class Killed(NoProgress):
    """Ends an export while it packs a model."""

    def __init__(self, model: str, num_tensors: int) -> None:
        self._stage, self._left = f"quantise and pack {model}", num_tensors
        self._is_there = False

    def stage(self, name: str, total: int) -> None:  # noqa: ARG002 - the protocol's
        self._is_there = name == self._stage

    def advance(self, steps: int = 1) -> None:
        self._left -= steps if self._is_there else 0
        if self._left == 0:
            raise KeyboardInterrupt


class Notes(NoProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("checkpoint") / "llama", tiny_config("llama"))


def kill(checkpoint: Path, out: Path, model: str, num_tensors: int) -> None:
    """Leaves what a killed process does, which removes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_args, **_options: None)
        with pytest.raises(KeyboardInterrupt):
            export(str(checkpoint), out, str(checkpoint), options=QUICK, progress=Killed(model, num_tensors))


@pytest.mark.parametrize(
    ("model", "kept"), [("target", {"target.bin": 4}), ("draft", {"target.bin": -1, "draft.bin": 4})]
)
def test_an_export_goes_on_where_another_was_killed(
    model: str, kept: dict[str, int], checkpoint: Path, tmp_path: Path
) -> None:
    whole = export(str(checkpoint), tmp_path / "whole", str(checkpoint), options=QUICK)
    kill(checkpoint, tmp_path / "out", model, 4)
    notes = Notes()
    export(str(checkpoint), tmp_path / "out", str(checkpoint), options=QUICK, progress=notes)
    num_tensors = {f"{name}.bin": len(entry.tensors) for name, entry in whole.manifest.models.items()}
    expected = {name: num_tensors[name] if count < 0 else count for name, count in kept.items()}
    assert [note for note in notes.notes if "promises" not in note] == [
        f"{name}: {count} tensors are kept, which an export that was killed had packed"
        for name, count in expected.items()
    ]
    for path in whole.folder.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in whole.folder.iterdir()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]


def test_another_export_into_the_same_place_keeps_nothing(checkpoint: Path, tmp_path: Path) -> None:
    kill(checkpoint, tmp_path / "out", "draft", 4)
    notes = Notes()
    options = replace(QUICK, max_positions=16)
    export(str(checkpoint), tmp_path / "out", options=options, progress=notes)
    assert notes.notes == []
    names = {"manifest.json", "target.bin", "target.onnx", "tokenizer.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names  # no draft.bin
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_another_adapter_keeps_nothing(checkpoint: Path, tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "adapter", pair("model.layers.0.self_attn.q_proj", 64, 64))
    whole = export(str(checkpoint), tmp_path / "whole", options=QUICK, adapters=[adapter])
    kill(checkpoint, tmp_path / "out", "target", 4)
    notes = Notes()
    export(str(checkpoint), tmp_path / "out", options=QUICK, adapters=[adapter], progress=notes)
    assert not any("kept" in note for note in notes.notes)
    assert (tmp_path / "out" / "target.bin").read_bytes() == (whole.folder / "target.bin").read_bytes()
