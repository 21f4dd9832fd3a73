"""Text files as rows of tokens."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tiny_training import WORDS

from pilotfish.exporter.training.errors import DataError
from pilotfish.exporter.training.text import PromptOverlap, find_text, pack_text

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.training.target import Target


def ignore(_units: int) -> None:
    """No progress."""


def test_rows_are_the_files_tokens_in_order(target: Target, tmp_path: Path) -> None:
    texts = {"b.txt": "w1 w2 w3\nw4 " * 50, "a.md": "w5 " * 33, "skipped.bin": "w9"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = find_text(tmp_path, None)
    assert [file.name for file in files] == ["a.md", "b.txt"]
    rows = pack_text(files, target.backend, 8, [], tmp_path / "rows", advance=ignore)
    expected = target.backend.encode(texts["a.md"] + texts["b.txt"]).ids
    assert rows.tokens.ravel().tolist() == expected[: len(rows) * 8]
    assert len(rows) == len(expected) // 8


def test_progress_counts_all_bytes(target: Target, text_file: Path, tmp_path: Path) -> None:
    counted = []
    pack_text(find_text(text_file, None), target.backend, 16, [], tmp_path / "rows", advance=counted.append)
    assert sum(counted) == text_file.stat().st_size


def test_rows_that_quote_a_prompt_are_left_out(target: Target, tmp_path: Path) -> None:
    chooser = random.Random(1)
    words = chooser.choices(WORDS, k=400)
    (tmp_path / "text.txt").write_text(" ".join(words))
    prompt = " ".join(words[205:230])  # 25 tokens inside the row of tokens 200 to 239
    files = find_text(tmp_path / "text.txt", None)
    rows = pack_text(files, target.backend, 40, [prompt], tmp_path / "rows", advance=ignore)
    everything = pack_text(files, target.backend, 40, [], tmp_path / "all", advance=ignore)
    assert rows.tokens.tolist() == np.delete(everything.tokens, 5, axis=0).tolist()


def test_short_runs_are_no_overlap() -> None:
    overlap = PromptOverlap([list(range(19)), list(range(100, 120))])
    rows = np.array([np.arange(30), np.arange(95, 125), np.arange(101, 131)])
    assert overlap.rows_that_overlap(rows).tolist() == [False, True, False]


def test_licences_of_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("w1")
    (tmp_path / "two.txt").write_text("w2")
    (tmp_path / "manifest.json").write_text(json.dumps({"sources": [{"file": "set/one.txt", "licence": "MIT"}]}))
    assert [file.licence for file in find_text(tmp_path, "CC0-1.0")] == ["MIT", "CC0-1.0"]
    assert find_text(tmp_path / "two.txt", None)[0].licence == "not stated"


@pytest.mark.parametrize("content", ["{", '{"sources": [{"file": "x"}]}', "[]"])
def test_another_manifest_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "one.txt").write_text("w1")
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DataError, match="is not of the form"):
        find_text(tmp_path, None)


def test_folder_without_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no text"):
        find_text(tmp_path, None)


def test_other_encodings_are_refused(target: Target, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"w1 \xe9 w2")
    with pytest.raises(DataError, match=r"latin.txt is not UTF-8 text: .* at byte 3"):
        pack_text(find_text(tmp_path, None), target.backend, 8, [], tmp_path / "rows", advance=ignore)
