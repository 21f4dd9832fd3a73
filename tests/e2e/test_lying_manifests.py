"""A manifest that says other sizes than its graphs have is refused when it is loaded: no buffer goes by it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from head_bundles import export_head, random_head
from tiny_bundles import byte_tokenizer

from pilotfish import Engine
from pilotfish.bindings import BundleCorruptError, BundleVersionError, OnnxRuntimeFailedError, PilotfishError

if TYPE_CHECKING:
    from collections.abc import Callable

Change = dict[tuple[str, ...], Any]

PAIRS: list[tuple[Change, str]] = [
    ({("models", "target", "head_dim"): 8}, r"input key_cache.0: expected .*2, 8\], found .*2, 16\]"),
    ({("models", "target", "head_dim"): 256}, "input key_cache.0"),
    ({("models", "target", "num_kv_heads"): 1}, r"input key_cache.0: expected .*1, 16\], found .*2, 16\]"),
    ({("models", "target", "num_layers"): 3}, "input key_cache.2: expected by the manifest, found none"),
    ({("models", "target", "cache_dtype"): "f32"}, "input key_cache.0: expected ONNX's element type 1, found 10"),
    ({("models", "target", "cache_dtype"): "int8"}, "input key_cache.0"),
    ({("models", "draft", "cache_dtype"): "int8"}, "input key_cache.0"),
    ({("models", "draft", "head_dim"): 32}, "input key_cache.0"),
    ({("models", "draft", "num_logits"): 100}, r"output logits: expected .*100\], found .*258\]"),
    (
        {("models", name, size): 300 for name in ("target", "draft") for size in ("vocab_size", "num_logits")},
        r"output logits: expected .*300\], found .*258\]",
    ),
    ({("tokenizer", "size"): 2**31 - 1}, "tokenizer.size: expected an integer"),
    ({("tokenizer", "size"): 259}, "size: expected at most the target's vocab_size 258, found 259"),
    ({("tokenizer", "eos_ids"): [258]}, "eos_ids: expected an integer from 0 to 257"),
    ({("tokenizer", "bos_id"): 258}, "bos_id: expected an integer from 0 to 257"),
    ({("models", "draft", "num_logits"): 2, ("models", "draft", "logit_ids"): [0, 258]}, "logit_ids"),
]

HEADS: list[tuple[Change, str]] = [
    ({("models", "target", "hidden_size"): 32}, r"output aux_hidden.0: expected .*32\], found .*64\]"),
    ({("models", "target", "hidden_size"): 128}, "output aux_hidden.0"),
    ({("head", "state_size"): 32}, r"features: expected .*32\], found .*64\]"),
    ({("head", "cache", "head_dim"): 8}, "input key_cache.0"),
    ({("head", "cache", "num_kv_heads"): 64}, "input key_cache.0"),
    ({("head", "cache", "cache_dtype"): "int8"}, "input key_cache.0"),
    ({("head", "num_logits"): 3, ("head", "logit_ids"): [1, 2, 4]}, r"output logits: expected .*3\]"),
    ({("head", "taps"): [0, 1], ("models", "target", "taps"): [0, 1]}, "."),
    ({("head", "taps"): [2, 1, 0, 1], ("models", "target", "taps"): [2, 1, 0, 1]}, "each stream once"),
    (
        {("tokenizer", "size"): 2**31 - 1, ("head", "logit_ids"): [60000 * i for i in range(172)]},
        "tokenizer.size: expected an integer",
    ),
]


def changed(bundle: Path, change: Change) -> Path:
    content = json.loads((bundle / "manifest.json").read_text())
    for keys, value in change.items():
        entry = content
        for key in keys[:-1]:
            entry = entry[key]
        assert entry[keys[-1]] != value
        entry[keys[-1]] = value
    (bundle / "manifest.json").write_text(json.dumps(content))
    return bundle


@pytest.fixture(scope="module")
def head_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("head")
    target, head, _, _ = random_head(folder, "eagle3", byte_tokenizer())
    return export_head(folder / "bundle", target, head)


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda bundle: Path(shutil.copytree(bundle, tmp_path / "bundle"))


@pytest.mark.parametrize(("change", "words"), PAIRS, ids=str)
def test_a_pair(tiny_bundle: Path, copy_of: Callable[[Path], Path], change: Change, words: str) -> None:
    with pytest.raises(BundleCorruptError, match=words):
        Engine(changed(copy_of(tiny_bundle), change))


@pytest.mark.parametrize("cache_dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_cache_type_that_was_removed(
    tiny_bundle: Path, copy_of: Callable[[Path], Path], role: str, cache_dtype: str
) -> None:
    words = (
        rf"models\.{role}\.cache_dtype is \"{cache_dtype}\"; this pilotfish has caches of f16, f32 and int8: "
        "export the bundle again with --cache-dtype f16 or int8"
    )
    bundle = changed(copy_of(tiny_bundle), {("models", role, "cache_dtype"): cache_dtype})
    with pytest.raises(BundleVersionError, match=words):
        Engine(bundle)


@pytest.mark.parametrize(("change", "words"), HEADS, ids=str)
def test_a_head(head_bundle: Path, copy_of: Callable[[Path], Path], change: Change, words: str) -> None:
    with pytest.raises((BundleCorruptError, OnnxRuntimeFailedError), match=words):
        Engine(changed(copy_of(head_bundle), change))


def test_fewer_layers_than_the_graph_has(tiny_bundle: Path, copy_of: Callable[[Path], Path]) -> None:
    with pytest.raises(PilotfishError, match=r"key_cache\.1"):
        Engine(changed(copy_of(tiny_bundle), {("models", "target", "num_layers"): 1}))
