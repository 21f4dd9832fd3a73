"""Weights that give NaN: of a draft or head they cost speed and are told, of the target they are an error."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broken_rows import check_one_broken
from head_bundles import export_head, random_head
from tiny_bundles import byte_tokenizer

from pilotfish import Engine
from pilotfish.bindings import BundleCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable

NAN = struct.pack("<f", float("nan"))
TILE_ROWS = 16
PROMPT = "w1 w2 w3 w1 w2"


def spoil(bundle: Path, model: str, tensor: str, change: Callable[[bytearray], None]) -> Path:
    """Changes a tensor's bytes in a bundle, and its hash in the manifest."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    entry = manifest["head"] if model == "head" else manifest["models"][model]
    path = bundle / entry["weights"]["file"]
    content = bytearray(path.read_bytes())
    place = next(found for found in entry["tensors"] if found["name"] == tensor)
    part = content[place["offset"] : place["offset"] + place["bytes"]]
    change(part)
    content[place["offset"] : place["offset"] + place["bytes"]] = part
    path.write_bytes(content)
    entry["weights"]["sha256"] = hashlib.sha256(content).hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    return bundle


def fill_with_nan(part: bytearray) -> None:
    part[:] = NAN * (len(part) // 4)


@pytest.fixture
def toy_copy(toy_bundle: Path, tmp_path: Path) -> Path:
    """Its weights are f32."""
    return Path(shutil.copytree(toy_bundle, tmp_path / "bundle"))


OPTIONS: list[dict[str, Any]] = [
    {"source": "draft", "num_draft_tokens": 3},
    {"source": "draft", "num_draft_tokens": 3, "temperature": 1.0},
    {"source": "draft", "num_draft_tokens": 3, "temperature": 1.0, "top_p": 0.9},
    {"source": "draft", "num_draft_tokens": 3, "repetition_penalty": 1.1},
    {"source": "draft", "tree": "dynamic", "tree_nodes": 6, "tree_depth": 2},
    {"source": "draft", "tree": "dynamic", "tree_nodes": 6, "tree_depth": 2, "temperature": 1.0},
    {"source": "draft", "tree": "dynamic"},
    {"source": "draft", "tree": "dynamic", "temperature": 1.0, "typical_p": 0.9},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_draft_without_numbers_leaves_the_text_to_the_target(
    toy_bundle: Path, toy_copy: Path, options: dict[str, Any]
) -> None:
    common = {"max_new_tokens": 12, "ignore_eos": True, "seed": 3}
    drafting = ("source", "num_draft_tokens", "tree", "tree_nodes", "tree_depth")
    plain = {name: value for name, value in options.items() if name not in drafting}
    with Engine(toy_bundle, threads=1) as engine:
        expected = engine.generate(PROMPT, source="plain", **common, **plain)
    with (
        Engine(spoil(toy_copy, "draft", "lm_head", fill_with_nan), threads=1) as engine,
        pytest.warns(RuntimeWarning, match="the draft of this bundle gave logits that are not numbers"),
    ):
        result = engine.generate(PROMPT, **common, **options)
    assert result.token_ids == expected.token_ids
    assert 0 < result.stats.num_failed_drafts <= result.stats.num_rounds
    assert result.stats.num_model_drafted == 0
    assert expected.stats.num_failed_drafts == 0


def test_a_draft_without_some_numbers(toy_bundle: Path, toy_copy: Path) -> None:
    """One weight: the logit of one token is NaN in every row."""

    def change(part: bytearray) -> None:
        part[:4] = NAN

    with Engine(toy_bundle, threads=1) as engine:
        expected = engine.generate(PROMPT, max_new_tokens=12, ignore_eos=True)
    with (
        Engine(spoil(toy_copy, "draft", "lm_head", change), threads=1) as engine,
        pytest.warns(RuntimeWarning, match="not numbers"),
    ):
        result = engine.generate(PROMPT, max_new_tokens=12, ignore_eos=True, source="draft", tree="dynamic")
    assert result.token_ids == expected.token_ids
    assert result.stats.num_failed_drafts > 0


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3}, {"logprobs": 3}], ids=str
)
def test_a_target_without_numbers_is_an_error_of_the_bundle(toy_copy: Path, options: dict[str, Any]) -> None:
    with (
        Engine(spoil(toy_copy, "target", "lm_head", fill_with_nan), threads=1) as engine,
        pytest.raises(BundleCorruptError, match="the target's logits are not numbers"),
    ):
        engine.generate(PROMPT, **options)


@pytest.mark.parametrize("cache_dtype", ["f16", "f32", "int8"])
@pytest.mark.parametrize("tensor", ["qkv", "gate_up"])
def test_a_scale_that_is_nan_does_not_hide_in_integers(
    cache_bundles: dict[str, Path], tmp_path: Path, tensor: str, cache_dtype: str
) -> None:
    """Of the last layer's weight, 16 outputs have scales of NaN: activations and caches are quantised after it."""
    bundle = Path(shutil.copytree(cache_bundles[cache_dtype], tmp_path / "bundle"))
    names = [
        entry["name"] for entry in json.loads((bundle / "manifest.json").read_text())["models"]["target"]["tensors"]
    ]
    name = [name for name in names if tensor in name and "norm" not in name][-1]

    def change(part: bytearray) -> None:
        part[512:576] = b"\xff" * 64  # behind the nibbles of a tile's first group

    with (
        Engine(spoil(bundle, "target", name, change), threads=1) as engine,
        pytest.raises(BundleCorruptError, match="the target's logits are not numbers"),
    ):
        engine.generate("Hello", max_new_tokens=3)


def test_one_broken_token_does_no_harm_to_other_requests(toy_bundle: Path, toy_copy: Path) -> None:
    """Its row of the embedding is NaN, and so is what it leaves in cache blocks that others use after it."""

    def change(part: bytearray) -> None:
        for column in range(len(part) // (TILE_ROWS * 4)):
            at = (column * TILE_ROWS + 5) * 4
            part[at : at + 4] = NAN

    prompts = ["w1 w2 w3", "w3 w3", "w7 w8 w9 w1 w2"]
    options: dict[str, Any] = {"max_new_tokens": 6, "ignore_eos": True, "logit_bias": {5: float("-inf")}}
    with Engine(toy_bundle, threads=1) as engine:
        expected = [engine.generate(prompt, **options).token_ids for prompt in prompts]
    with Engine(spoil(toy_copy, "target", "embedding", change), threads=1) as engine:
        for prompt, token_ids in zip(prompts, expected, strict=True):
            with pytest.raises(BundleCorruptError):
                engine.generate("w1 w5 " * 9, **options)
            assert engine.generate(prompt, **options).token_ids == token_ids
        engine.check()


SHARED: list[list[dict[str, Any]]] = [
    [{"source": "plain"}] * 4,
    [{"source": "draft", "num_draft_tokens": 3}] * 4,
    [{"source": "draft", "tree": "dynamic", "tree_nodes": 6, "tree_depth": 2}] * 4,
    [{}, {"source": "plain"}, {"source": "lookup"}, {"source": "draft", "num_draft_tokens": 5, "logprobs": 2}],
]


@pytest.mark.parametrize("options", SHARED, ids=str)
def test_one_broken_token_does_no_harm_to_those_who_share_a_pass(
    tiny_bundle: Path, tmp_path: Path, options: list[dict[str, Any]]
) -> None:
    common = {"max_new_tokens": 24, "ignore_eos": True, "reuse_prefix": False}
    asked = [
        (list(text), common | own) for text, own in zip((b"Hello", b"a b a b", b"why", b"1 + 1"), options, strict=True)
    ]
    check_one_broken(tiny_bundle, asked, tmp_path, threads=1, num_sequences=4, max_draft_tokens=8, calibration="off")


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"tree": "dynamic"}], ids=str)
def test_a_head_without_numbers_leaves_the_text_to_the_target(
    spoiled_heads: dict[str, Path], kind: str, options: dict[str, Any]
) -> None:
    common = {"max_new_tokens": 12, "ignore_eos": True, "seed": 3}
    plain = {name: value for name, value in options.items() if name != "tree"}
    if "tree" not in options:
        options = options | {"num_draft_tokens": 3}
    with Engine(spoiled_heads[kind], threads=1) as engine:
        expected = engine.generate("Hello", source="plain", **common, **plain)
        with pytest.warns(RuntimeWarning, match="not numbers"):
            result = engine.generate("Hello", source="head", **common, **options)
    assert result.token_ids == expected.token_ids
    assert result.stats.num_failed_drafts > 0


@pytest.fixture(scope="module")
def spoiled_heads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Bundles by the kind of their head, whose first own matrix is NaN."""

    def spoiled(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        target, head, _, _ = random_head(folder, kind, byte_tokenizer())
        bundle = export_head(folder / "bundle", target, head)
        tensors = json.loads((bundle / "manifest.json").read_text())["head"]["tensors"]
        matrix = next(entry["name"] for entry in tensors if entry["dtype"] == "u8")
        return spoil(bundle, "head", matrix, fill_with_nan)

    return {kind: spoiled(kind) for kind in ("eagle", "eagle3")}
