"""No tensor of a checkpoint is left out, missing, of another shape or no number without a word."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_gguf import finish, write_gguf
from tiny_models import save_model, tiny_config
from tiny_mtp import add_mtp

from pilotfish.exporter import ExportOptions, ModelFormats, export
from pilotfish.exporter.checkpoint_check import check_checkpoint
from pilotfish.exporter.errors import CheckpointError, ExportError, UnsupportedModelError, UnusedTensorError
from pilotfish.exporter.load import load_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUICK = ExportOptions(target=ModelFormats("f32", "f32", "f32"), parity=False)
Tensors = dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def checkpoint_with(folder: Path, change: Callable[[Tensors], Any], family: str = "llama", **settings: Any) -> Path:
    """A tiny checkpoint whose tensors and configuration were changed after it was saved."""
    save_model(folder, tiny_config(family))
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def check(folder: Path, *, uses_mtp: bool = False, ignore_unused: bool = False) -> list[str]:
    return check_checkpoint(load_checkpoint(str(folder)), uses_mtp=uses_mtp, ignore_unused=ignore_unused)


UNUSED = {
    "classification head": (
        "llama",
        {"score.weight": (2, 64)},
        {},
        r"a tensor that its model does not use \(score\.weight\)",
    ),
    "adapter": ("llama", {"model.layers.0.self_attn.q_proj.lora_A.weight": (4, 64)}, {}, r"lora_A"),
    "stray scale": ("llama", {"model.layers.0.self_attn.q_proj.input_scale": (1,)}, {}, r"q_proj\.input_scale"),
    "a real bias": ("llama", {"model.layers.0.self_attn.attention.bias": (64,)}, {}, r"attention\.bias"),
    "a layer more": (
        "llama",
        {},
        {"num_hidden_layers": 1},
        r"has 9 tensors .*\(model\.layers\.1\.input_layernorm\.weight",
    ),
    "an untied output layer": (
        "llama_tied",
        {"lm_head.weight": (258, 64)},
        {},
        r"lm_head\.weight, which is not equal to model\.emb",
    ),
}


@pytest.mark.parametrize("name", UNUSED)
def test_a_tensor_that_nothing_reads_is_named(name: str, tmp_path: Path) -> None:
    family, shapes, settings, message = UNUSED[name]
    added = {key: torch.ones(shape) for key, shape in shapes.items()}
    folder = checkpoint_with(tmp_path / "model", lambda tensors: tensors.update(added), family, **settings)
    with pytest.raises(UnusedTensorError, match=message + ".*; to export without: --ignore-unused"):
        export(str(folder), tmp_path / "out", options=QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (note,) = check(folder, ignore_unused=True)
    assert note.endswith("it is left out")


def test_an_adapter_beside_its_base_is_named(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(UnusedTensorError, match=r"has an adapter .* beside its model"):
        check(folder)
    assert check(folder, ignore_unused=True)


def test_insisting_exports_and_says_so(tmp_path: Path) -> None:
    folder = checkpoint_with(tmp_path / "model", lambda tensors: tensors.update({"score.weight": torch.ones(2, 64)}))
    with pytest.warns(UserWarning, match=r"score\.weight.*left out"):
        export(str(folder), tmp_path / "out", options=ExportOptions(parity=False, ignore_unused=True))
    assert (tmp_path / "out" / "manifest.json").is_file()


def test_what_no_model_needs_to_read_is_allowed(tmp_path: Path) -> None:
    def add(tensors: Tensors) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
        tensors["model.rotary_emb.inv_freq"] = torch.ones(8)
        tensors["model.layers.0.attn.bias"] = torch.ones(1, 1, 16, 16, dtype=torch.bool)
        tensors["model.layers.0.attn.masked_bias"] = torch.tensor(-1e4)
        tensors["model.position_ids"] = torch.arange(16)[None]

    assert check(checkpoint_with(tmp_path / "model", add)) == []


def test_an_equal_twin_is_allowed(tmp_path: Path) -> None:
    def add(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    assert check(checkpoint_with(tmp_path / "model", add, "llama_tied")) == []


def test_an_output_layer_of_its_own_is_exported(tmp_path: Path) -> None:
    """onnxruntime-genai#2306: a fine-tuned output layer was replaced by the embedding."""
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    manifest = export(str(folder), tmp_path / "out", options=QUICK).manifest
    assert {"embedding", "lm_head"} <= {tensor.name for tensor in manifest.models["target"].tensors}


def test_a_prediction_layer_is_noted_unless_it_is_the_head(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    add_mtp(folder, "deepseek")
    (note,) = check(folder)
    assert "has a multi-token prediction layer (model.layers.2." in note
    assert check(folder, uses_mtp=True) == []


def test_shapes_are_those_of_the_configuration(tmp_path: Path) -> None:
    folder = checkpoint_with(tmp_path / "model", lambda _: None, intermediate_size=80)
    with pytest.raises(
        CheckpointError, match=r"gate_proj\.weight is \[96, 64\], the configuration makes it \[80, 64\]"
    ):
        check(folder)


def test_a_layer_less_than_configured(tmp_path: Path) -> None:
    folder = checkpoint_with(tmp_path / "model", lambda _: None, num_hidden_layers=3000)
    with pytest.raises(CheckpointError, match=r"has no tensor model\.layers\.2\.self_attn\.q_proj\.weight"):
        check(folder)


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.float8_e4m3fn])
def test_packed_tensors_without_a_word_in_the_configuration(kind: torch.dtype, tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    folder = checkpoint_with(tmp_path / "model", lambda tensors: tensors.update({name: tensors[name].to(kind)}))
    with pytest.raises(UnsupportedModelError, match=r"up_proj\.weight has type .*, which is already quantised"):
        check(folder)


@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_values_that_are_no_numbers(name: str, value: float, tmp_path: Path) -> None:
    folder = checkpoint_with(tmp_path / "model", lambda tensors: tensors[name].view(-1)[5:7].fill_(value))
    with pytest.raises(CheckpointError, match=f"tensor {name} has 2 values that are NaN or infinite"):
        export(str(folder), tmp_path / "out", options=ExportOptions(parity=False))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def shards(folder: Path) -> Path:
    """A checkpoint in two files."""
    save_model(folder, tiny_config("llama"))
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_shards_are_read(tmp_path: Path) -> None:
    assert check(shards(tmp_path / "model")) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index, _: index["weight_map"].update({"lm_head.weight": "b.safetensors"}), "which does not have it"),
        (
            lambda index, _: index["weight_map"].update({"lm_head.weight": "gone.safetensors"}),
            r"gone\.safetensors is missing",
        ),
        (lambda index, _: index["weight_map"].update({"lm_head.weight": "../x.safetensors"}), "is not in its folder"),
        (lambda index, _: index["weight_map"].clear(), "its weight_map is empty"),
        (lambda index, _: index.update(weight_map=[1]), "names no files of tensors"),
        (
            lambda _, folder: save_file(load_file(folder / "a.safetensors"), folder / "b.safetensors"),
            r"is in a\.safetensors and in",
        ),
    ],
)
def test_an_index_that_does_not_fit_its_files(change: Callable[..., Any], message: str, tmp_path: Path) -> None:
    folder = shards(tmp_path / "model")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index, folder)
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=message):
        check(folder)


def damaged(header: dict[str, Any] | bytes, size: int = 8, data: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size == 8 else size) + text + data


ENTRY = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
DAMAGED = {
    "empty": b"",
    "no header": struct.pack("<Q", 1 << 60),
    "no JSON": damaged(b"{nonsense"),
    "long header": damaged({"a": ENTRY}, size=1 << 40),
    "overlap": damaged({"a": ENTRY, "b": ENTRY}),
    "beyond the end": damaged({"a": ENTRY | {"data_offsets": [0, 1 << 40], "shape": [1 << 38]}}),
    "unknown type": damaged({"a": ENTRY | {"dtype": "F13"}}),
    "shape and size": damaged({"a": ENTRY | {"shape": [5]}}),
    "huge shape": damaged({"a": ENTRY | {"shape": [1 << 62, 1 << 62]}}),
    "negative": damaged({"a": ENTRY | {"data_offsets": [-16, 0]}}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_safetensors(name: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    (folder / "model.safetensors").write_bytes(DAMAGED[name])
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        check(folder)


def gguf_model(path: Path, **further: np.ndarray[Any, Any]) -> Path:
    """A tiny Llama as GGUF, of which nothing but names and shapes is right."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (
        ("context_length", 64),
        ("embedding_length", 64),
        ("feed_forward_length", 96),
        ("block_count", 1),
    ):
        writer.add_uint32(f"llama.{key}", value)
    writer.add_uint32("llama.attention.head_count", 4)
    writer.add_uint32("llama.attention.head_count_kv", 2)
    writer.add_uint32("llama.vocab_size", 32)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
    shapes = {"token_embd": (32, 64), "output": (32, 64), "output_norm": (64,)}
    shapes |= {f"blk.0.{part}_norm": (64,) for part in ("attn", "ffn")}
    shapes |= {f"blk.0.attn_{part}": (rows, 64) for part, rows in (("q", 64), ("k", 32), ("v", 32), ("output", 64))}
    shapes |= {"blk.0.ffn_gate": (96, 64), "blk.0.ffn_up": (96, 64), "blk.0.ffn_down": (64, 96)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
    for name, values in further.items():
        writer.add_tensor(name.replace("__", "."), values)
    finish(writer)
    return path


def test_a_gguf_tensor_that_nothing_reads_is_named(tmp_path: Path) -> None:
    assert check(gguf_model(tmp_path / "plain.gguf")) == []
    path = gguf_model(tmp_path / "more.gguf", blk__0__attn_q__lora_a=np.ones((4, 64), np.float32))
    with pytest.raises(UnusedTensorError, match=r"\(blk\.0\.attn_q\.lora_a\)"):
        check(path)


@pytest.mark.parametrize("cut", [3, 20, 100, 1000, -100])
def test_a_truncated_gguf(cut: int, tmp_path: Path) -> None:
    path = gguf_model(tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ExportError, match="is not a complete GGUF file"):
        check(path)


@pytest.mark.parametrize(("place", "value"), [(0, 0x46554748), (4, 99), (8, 1 << 60), (16, 1 << 60), (24, 1 << 60)])
def test_a_gguf_header_that_cannot_be(place: int, value: int, tmp_path: Path) -> None:
    path = gguf_model(tmp_path / "model.gguf")
    data = bytearray(path.read_bytes())
    struct.pack_into("<I" if place < 8 else "<Q", data, place, value)
    path.write_bytes(bytes(data))
    with pytest.raises(ExportError, match="is not a complete GGUF file"):
        check(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.alignment", 0, "is not a complete GGUF file"),
        ("llama.block_count", "two", "has no readable model configuration"),
        ("llama.attention.head_count", 0, "has no readable model configuration"),
    ],
)
def test_gguf_metadata_that_cannot_be(key: str, value: Any, message: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    fields = {key.replace("llama", "{arch}"): value, "{arch}.attention.key_length": None}
    path = write_gguf(folder, tmp_path / "model.gguf", fields=fields)
    with pytest.raises(CheckpointError, match=message):
        check(path)
