"""The static tree that is searched for a bundle's Medusa heads, and what becomes of it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import tiny_heads
import torch
from fitted_heads import LOW_BIT, TorchTarget, export_with, fitted_head

from pilotfish import Engine
from pilotfish.bindings import BundleCorruptError, BundleFileMissingError
from pilotfish.exporter import check_bundle
from pilotfish.runtime.manifest import read_manifest, store_tree
from pilotfish.runtime.options import GenerateKeywords

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine


@pytest.fixture(scope="module")
def bundle(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder, target = tmp_path_factory.mktemp("medusa"), checkpoints["target"]
    head = tiny_heads.save_head(folder / "head", *fitted_head("medusa", TorchTarget(target)))
    return export_with(folder / "bundle", target, head, LOW_BIT)


def test_a_tree_is_searched_and_kept(bundle: Path, tiny_bundle: Path, cli: CommandLine, tmp_path: Path) -> None:
    texts = tmp_path / "prompts.jsonl"
    texts.write_text("".join(json.dumps({"category": "a", "prompt": text}) + "\n" for text in ("one", "two")))
    flags = ("--prompts", texts, "--new-tokens", 24, "--search-tree", 5, "--json", tmp_path / "scores.json")
    refused = cli("evaluate-draft", bundle, tiny_bundle, *flags)
    assert (refused.exit_code, refused.err.count("\n")) == (2, 1)
    assert "--search-tree is for Medusa heads" in refused.err
    assert "has no head" in refused.err
    assert not read_manifest(bundle).head.tree
    copy = shutil.copytree(bundle, tmp_path / "bundle")
    finished = cli("evaluate-draft", copy, *flags)
    assert finished.exit_code == 0, finished.err
    assert "stored a tree of 5 token(s)" in finished.out
    (report,) = json.loads((tmp_path / "scores.json").read_text())["bundles"]
    assert "own tree of 5" in [each["shape"] for each in report["head"][-1]["shapes"]]
    tree = read_manifest(copy).head.tree
    assert check_bundle(copy).head.tree == tree
    assert "a tree of 5 tokens was searched for it" in cli("info", copy).out
    options = GenerateKeywords(max_new_tokens=40, explain=True)
    with Engine(copy, threads=2) as searched:
        for prompt in ([3], list(range(7, 40))):
            result = searched.generate(prompt, tree="medusa", **options)
            assert result.token_ids == searched.generate(prompt, source="plain", **options).token_ids
            assert all(each.ranks == () or each.ranks in tree for each in result.rounds)
            assert max(each.num_verified for each in result.rounds) == 5


def test_a_tree_in_a_manifest_must_be_one(bundle: Path, tmp_path: Path) -> None:
    shutil.copy(bundle / "manifest.json", tmp_path)
    store_tree(tmp_path, ((0,), (2,)))
    with pytest.raises(BundleCorruptError, match=r"the choice \[2\] lacks \[1\]"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json.partial").mkdir()
    with pytest.raises(BundleFileMissingError, match="cannot be written"):
        store_tree(tmp_path, ((0,),))
