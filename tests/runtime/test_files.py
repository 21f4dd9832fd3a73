"""Files that users name: JSON as its standard has it, outputs that overwrite nothing, and whole files or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.bindings import InvalidArgumentError
from pilotfish.runtime.files import (
    check_outputs,
    is_of_a_bundle,
    parse_json,
    replace_bytes,
    replace_text,
    why_not_writable,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NaN", "NaN is no number of JSON"),
        ('{"a": [-Infinity]}', "-Infinity is no number"),
        ('{"a": 1, "b": 2, "a": 3}', "an object has 'a' twice"),
        ("[" * 100_000, "nested too deep"),
        ("", "Expecting value"),
    ],
)
def test_what_is_no_json(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_json(text)


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 250 + ".html")  # a longer name beside it would not be one
    replace_text(file, "one \udcff")  # as a byte in a path that is no UTF-8
    file.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(file)
    replace_text(link, "two")
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("two", 0o600, True)
    assert set(tmp_path.iterdir()) == {file, link}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_was_there_stays_where_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    file = tmp_path / "page.html"
    file.write_text("before")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(type(error)):
        replace_bytes(file, b"after")
    assert (file.read_text(), list(tmp_path.iterdir())) == ("before", [file])


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none" / "file")
    for name, words in (
        ("loop", ("its links go in a circle", "Too many levels of symbolic links")),
        ("nowhere", (f"there is no folder {tmp_path / 'none'}",)),
        ("n" * 300, ("File name too long",)),
        ("a\0b", ("embedded null byte", "embedded null character in path")),
    ):
        assert why_not_writable(str(tmp_path / name)) in words
    assert why_not_writable(str(tmp_path / "new")) is None


def test_outputs_overwrite_neither_each_other_nor_what_is_read(tmp_path: Path) -> None:
    read, new = tmp_path / "a.json", tmp_path / "new"
    read.touch()
    (tmp_path / "link").symlink_to(read)
    for outputs, words in (
        ({"--json": str(tmp_path / "link")}, "--json .* would overwrite .*a.json', which is read"),
        ({"--html": str(new), "--json": f"{tmp_path}/../{tmp_path.name}/new"}, "--json .* would overwrite what --html"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            check_outputs(outputs, [read])
    check_outputs({"--html": str(new), "--json": "-"}, [read])
    check_outputs({"--html": "/dev/null", "--json": "/dev/null"}, ["/dev/null"])


def test_files_of_a_bundle_are_known(tmp_path: Path) -> None:
    for name in ("manifest.json", "tokenizer.json", "target.bin", "notes.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "tokenizer.json")
    assert [is_of_a_bundle(str(tmp_path / name)) for name in ("manifest.json", "target.bin", "link.json")] == [True] * 3
    assert not is_of_a_bundle(str(tmp_path / "notes.json"))
    assert not is_of_a_bundle(str(tmp_path / "absent.onnx"))
    (tmp_path / "manifest.json").unlink()
    assert not is_of_a_bundle(str(tmp_path / "tokenizer.json"))
