"""A bundle cannot read other files, run what it likes, take memory at will or hang the process: it is refused."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest
from hostile_bundles import FORGERIES
from prepared_bundles import HEADS

from pilotfish import Engine
from pilotfish.bindings import BundleCorruptError, BundleFileMissingError
from pilotfish.runtime.manifest import read_manifest
from pilotfish.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from command_line import CommandLine

SECONDS = 2.0  # on a busy machine, too
KIB_MORE = 128 << 10


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_graph(hostile: Path, name: str) -> None:
    _, words = FORGERIES[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with pytest.raises(BundleCorruptError) as caught:
        Engine(hostile / name)
    assert time.process_time() - start < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KIB_MORE
    message = str(caught.value)
    assert "target.onnx: " in message
    assert words in message
    assert "\n" not in message


def test_one_line_on_the_command_line(hostile: Path, cli: CommandLine) -> None:
    finished = cli("run", hostile / "loop", "x")
    assert (finished.exit_code, finished.out) == (2, "")
    assert finished.err.startswith("error: ")
    assert finished.err.count("\n") == 1


def test_row_wise_nodes_are_allowed(row_wise_bundle: Path, plain_bundle: Path) -> None:
    options = {"max_new_tokens": 12, "ignore_eos": True}
    with Engine(row_wise_bundle, threads=1) as engine, Engine(plain_bundle, threads=1) as plain:
        assert engine.generate([1, 2, 3], **options).token_ids == plain.generate([1, 2, 3], **options).token_ids


@pytest.mark.parametrize("kind", HEADS)
def test_every_kind_of_head_is_allowed(head_bundles: Path, kind: str) -> None:
    options = {"max_new_tokens": 12, "ignore_eos": True}
    with Engine(head_bundles / kind, threads=1) as engine:
        drafted = engine.generate([1, 2, 3], source="head", num_draft_tokens=2, **options)
        assert drafted.token_ids == engine.generate([1, 2, 3], source="plain", **options).token_ids
        assert drafted.stats.num_drafted > 0


@pytest.fixture
def copy(plain_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain_bundle, tmp_path / "bundle"))


FILES = ("manifest.json", "tokenizer.json", "target.onnx", "target.bin")


@pytest.mark.parametrize("file", FILES)
def test_links_to_elsewhere(copy: Path, tmp_path: Path, file: str) -> None:
    (copy / file).rename(tmp_path / "moved")
    (copy / file).symlink_to(tmp_path / "moved")
    with pytest.raises(BundleCorruptError, match=rf"{file}:? is a link to .*moved; a bundle's files may link"):
        Engine(copy)


@pytest.mark.parametrize("file", FILES)
def test_pipes_and_sockets(copy: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    (copy / file).unlink()
    os.mkfifo(copy / file)
    with pytest.raises(BundleCorruptError, match=rf"{file}:? is a pipe, not a file"):
        Engine(copy)
    (copy / file).unlink()
    monkeypatch.chdir(copy)  # a socket's path has 108 bytes at most
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(file)
        with pytest.raises(BundleCorruptError, match=rf"{file}:? is a socket, not a file"):
            Engine(copy)


def hub_snapshot(bundle: Path, cache: Path, stays: str = "") -> Path:
    """The bundle as a hub's client keeps it: every file but `stays` is a link to one of `blobs`, under another name."""
    blobs, snapshot = cache / "blobs", cache / "snapshots" / "1a2b"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(bundle.iterdir())):
        if path.name == stays:
            path.rename(snapshot / path.name)
            continue
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", str(number)))
    return snapshot


@pytest.mark.parametrize("stays", ["", "target.bin", "head.bin"])
def test_a_hub_cache_has_links_to_its_blobs(head_bundles: Path, tmp_path: Path, stays: str) -> None:
    options = {"max_new_tokens": 12, "ignore_eos": True, "source": "head"}
    with Engine(head_bundles / "eagle3", threads=1) as engine:
        expected = engine.generate([1, 2, 3], **options)
    snapshot = hub_snapshot(
        Path(shutil.copytree(head_bundles / "eagle3", tmp_path / "copy")), tmp_path / "cache", stays
    )
    assert Tokenizer(read_manifest(snapshot)).encode("ab")
    with Engine(snapshot, threads=1) as engine:
        found = engine.generate([1, 2, 3], **options)
    assert (found.token_ids, found.stats.num_accepted) == (expected.token_ids, expected.stats.num_accepted)


def test_a_file_named_like_a_number_in_a_hub_cache(copy: Path, tmp_path: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    model = manifest["models"]["target"]
    offset = str(next(tensor["offset"] for tensor in model["tensors"] if tensor["offset"]))
    (copy / "target.bin").rename(copy / offset)
    model["weights"]["file"] = offset
    graph = onnx.load(copy / "target.onnx", load_external_data=False)
    for tensor in graph.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = offset
    onnx.save(graph, copy / "target.onnx")
    content = (copy / "target.onnx").read_bytes()
    model["graph"] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with Engine(copy, threads=1) as engine:
        expected = engine.generate([1, 2, 3], max_new_tokens=12).token_ids
    with Engine(hub_snapshot(copy, tmp_path / "cache"), threads=1) as engine:
        assert engine.generate([1, 2, 3], max_new_tokens=12).token_ids == expected


@pytest.mark.parametrize("opener", ['{"a":', "["])
def test_a_manifest_of_nothing_but_nesting(copy: Path, cli: CommandLine, opener: str) -> None:
    (copy / "manifest.json").write_text(opener * 100_000)
    with pytest.raises(BundleCorruptError, match="manifest"):
        Engine(copy)
    assert cli("info", copy).exit_code == 2
    content = json.dumps({"format": "pilotfish-bundle", "format_version": 1})
    (copy / "manifest.json").write_text(content[:-1] + ', "models": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(BundleCorruptError, match="manifest"):
        Engine(copy)


def test_a_manifest_without_end(copy: Path) -> None:
    os.truncate(copy / "manifest.json", 1 << 40)  # takes no room on the disk
    with pytest.raises(BundleCorruptError, match="at most 16777216 are allowed"):
        Engine(copy)


@pytest.mark.parametrize("name", ["../tokenizer.json", "/etc/passwd", "", ".", "inner/tokenizer.json"])
def test_a_tokenizer_elsewhere(copy: Path, name: str) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["tokenizer"]["file"] = name
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleCorruptError, match=r"tokenizer\.file|is not the name of a file"):
        Engine(copy)


def test_a_tokenizer_that_was_changed(copy: Path) -> None:
    content = (copy / "tokenizer.json").read_bytes()
    (copy / "tokenizer.json").write_bytes(content + b" ")
    with pytest.raises(BundleCorruptError, match=rf"{len(content) + 1}.*{len(content)}|{len(content)}.*found"):
        Engine(copy)
    (copy / "tokenizer.json").unlink()
    with pytest.raises(BundleFileMissingError, match=r"tokenizer\.json"):
        Engine(copy)
