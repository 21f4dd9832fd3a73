"""GGUF models in several files, and files that are cut, mixed or hold what nobody knows."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tiny_gguf import write_gguf
from tiny_models import save_model, tiny_config

from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError
from pilotfish.exporter.gguf import GgufSource, open_gguf
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.sources import SafetensorsSource
from pilotfish.exporter.trace import build_on_meta

if TYPE_CHECKING:
    from pathlib import Path

NUM_PARTS = 5


def split(folder: Path, out: Path) -> list[Path]:
    out.mkdir()
    write_gguf(folder, out / "model.gguf", part_tensors=5)
    parts = sorted(out.iterdir())
    assert len(parts) == NUM_PARTS
    return parts


@pytest.fixture
def parts(family_checkpoints: dict[str, Path], tmp_path: Path) -> list[Path]:
    return split(family_checkpoints["llama"], tmp_path / "parts")


@pytest.mark.parametrize("index", [0, 2, NUM_PARTS - 1])
def test_any_part_opens_them_all(index: int, parts: list[Path], family_checkpoints: dict[str, Path]) -> None:
    checkpoint = load_checkpoint(str(parts[index]))
    assert checkpoint.config.tie_word_embeddings is False  # output.weight is in a part of its own
    source = GgufSource(parts[index], build_on_meta(checkpoint.config))
    original = SafetensorsSource(family_checkpoints["llama"])
    for name in original.names():
        np.testing.assert_array_equal(source.read(name), original.read(name))


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[0].unlink()
    with pytest.raises(CheckpointError, match=r"part 1 of 5 is missing: put model-00001-of-00005\.gguf beside"):
        load_checkpoint(str(parts[3]))


def test_a_renamed_part(parts: list[Path], tmp_path: Path) -> None:
    renamed = parts[1].rename(tmp_path / "part.gguf")
    with pytest.raises(CheckpointError, match=r"one of 5 parts of a model; they must be named NAME-00001-of-00005"):
        load_checkpoint(str(renamed))


def test_parts_in_the_wrong_place(parts: list[Path]) -> None:
    shutil.copy(parts[1], parts[2])
    with pytest.raises(CheckpointError, match="is part 2 of 5, expected 3 of 5"):
        load_checkpoint(str(parts[0]))


def test_parts_of_two_models(parts: list[Path], tmp_path: Path) -> None:
    folder = save_model(tmp_path / "tied", tiny_config("llama_tied", num_hidden_layers=3))
    (tmp_path / "other").mkdir()
    write_gguf(folder, tmp_path / "other" / "model.gguf", part_tensors=6)
    others = sorted((tmp_path / "other").iterdir())
    assert len(others) == NUM_PARTS
    shutil.copy(others[1], parts[1])
    with pytest.raises(CheckpointError, match=r"parts of two models|not one model's"):
        load_checkpoint(str(parts[0]))


def test_a_file_that_ends_early(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf")
    data = path.read_bytes()
    for end in (4, 200, 900, len(data) // 2, len(data) - 64):
        path.write_bytes(data[:end])
        with pytest.raises(CheckpointError, match="is not a complete GGUF file"):
            open_gguf(path)


@pytest.mark.parametrize(("kind", "name"), [(250, "250"), (26, "I32"), (28, "F64"), (41, "Q1_0"), (15, "Q8_K")])
def test_a_type_that_cannot_be_read(kind: int, name: str, family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf")
    data = bytearray(path.read_bytes())
    tensor = b"token_embd.weight"
    place = data.index(tensor) + len(tensor) + 4 + 2 * 8  # behind the number and the sizes of its dimensions
    data[place : place + 4] = kind.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UnsupportedModelError, match=rf"^\S+ stores token_embd\.weight in type {name}, which the gguf"):
        open_gguf(path)


@pytest.mark.parametrize("count", ["5", [5], 1.5])
def test_a_number_of_parts_that_is_none(count: object, family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", fields={"split.count": count})
    with pytest.raises(CheckpointError, match=r"model\.gguf has split\.count = .*; it must be a whole number"):
        open_gguf(path)


def test_files_that_are_written_anew_are_opened_anew(parts: list[Path], tmp_path: Path) -> None:
    single = tmp_path / "model.gguf"
    sizes = []
    for num_layers in (1, 2):
        folder = save_model(tmp_path / f"layers{num_layers}", tiny_config("llama", num_hidden_layers=num_layers))
        sizes.append(len(open_gguf(write_gguf(folder, single)).tensors))
    assert sizes[0] < sizes[1]
    open_gguf(parts[0])
    parts[3].unlink()
    with pytest.raises(CheckpointError, match="part 4 of 5 is missing"):
        open_gguf(parts[0])
