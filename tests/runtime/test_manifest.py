"""A manifest is read or refused with the file, the value found and the remedy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.bindings import BundleCorruptError, BundleFileMissingError, BundleVersionError
from pilotfish.runtime.manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, content: Any) -> Path:
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


def test_a_written_bundle_is_read(tiny_bundle: Path) -> None:
    manifest = read_manifest(tiny_bundle)
    assert [model.role for model in manifest.models] == ["target", "draft"]
    assert manifest.tokenizer.eos_ids == (257,)
    assert manifest.chat_template


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(BundleFileMissingError, match="is not a bundle, make one with pilotfish export"):
        read_manifest(tmp_path)


def test_not_json(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(BundleCorruptError, match=r"manifest\.json is not JSON"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(("content", "found"), [([], "'list'"), ({}, "None"), ({"format": "zip"}, "'zip'")])
def test_another_format(tmp_path: Path, content: Any, found: str) -> None:
    with pytest.raises(BundleCorruptError, match=f"has format {found}, expected 'pilotfish-bundle'"):
        read_manifest(write(tmp_path, content))


def test_a_newer_version(tmp_path: Path) -> None:
    with pytest.raises(BundleVersionError, match="has format_version 2, this pilotfish reads 1"):
        read_manifest(write(tmp_path, {"format": "pilotfish-bundle", "format_version": 2}))


@pytest.mark.parametrize("key", ["created_by", "tokenizer", "chat_template", "models"])
def test_a_missing_key_is_named(tiny_bundle: Path, tmp_path: Path, key: str) -> None:
    content = json.loads((tiny_bundle / "manifest.json").read_text())
    del content[key]
    with pytest.raises(BundleCorruptError, match=f"KeyError: '{key}'"):
        read_manifest(write(tmp_path, content))
