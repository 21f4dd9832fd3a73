"""Which format a part of a model gets: the user's, the file's own, or a default; and what the summary says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
import torch
from architectures import config_of
from tiny_gguf import finish
from tiny_models import save_model, tiny_config

from pilotfish.exporter import ExportOptions, FormatChoice, ModelFormats, export
from pilotfish.exporter.formats import FOUR_BIT, MatrixFormats, choose_formats
from pilotfish.exporter.gguf import GgufSource
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.packing import unpack
from pilotfish.exporter.passes import fuse
from pilotfish.exporter.trace import build_on_meta, trace

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

    from pilotfish.exporter.passes import Plan

DEFAULT = ModelFormats("int4", "int8", "f16")
O_PROJ = "model.layers.0.self_attn.o_proj.weight"
Type = gguf.GGMLQuantizationType


def write_gguf(path: Path, types: dict[str, Type]) -> Path:
    """A two-layer Llama; `types` by the last part of a tensor's name, Q4_1 elsewhere."""
    rng = np.random.default_rng(4)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(258)
    writer.add_context_length(256)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    shapes = {"token_embd": (258, 64), "output": (258, 64)}
    for layer in range(2):
        parts = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64)}
        parts |= {"ffn_gate": (96, 64), "ffn_up": (96, 64), "ffn_down": (64, 96)}
        shapes |= {f"blk.{layer}.{part}": shape for part, shape in parts.items()}
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(64, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    for name, shape in shapes.items():
        rows = (0.3 * rng.standard_normal(shape)).astype(np.float32)
        kind = types.get(name.rpartition(".")[2], Type.Q4_1)
        if kind == Type.F16:
            writer.add_tensor(f"{name}.weight", rows.astype(np.float16))
        else:
            writer.add_tensor(f"{name}.weight", gguf.quantize(rows, kind), raw_dtype=kind)
    finish(writer)
    return path


def decide(path: Path, choice: FormatChoice) -> tuple[Plan, list[str], list[str], list[str | None]]:
    """The plan, and of each part its formats, the reason and the warning."""
    checkpoint = load_checkpoint(str(path))
    model = build_on_meta(checkpoint.config)
    formats = choose_formats(choice, DEFAULT, model, checkpoint.source(model))
    plan = fuse(trace(model), formats, "f16", checkpoint.config.num_hidden_layers)
    decisions = formats.decisions(plan)
    shares = [" ".join(f"{name} {share:.0%}" for name, share in item.shares) for item in decisions]
    return plan, shares, [item.reason for item in decisions], [item.warning for item in decisions]


def format_of(plan: Plan, name: str) -> str:
    return plan.weights[name].format


@pytest.mark.parametrize(
    ("types", "formats", "reasons"),
    [
        (
            {"token_embd": Type.Q8_0, "output": Type.Q4_0},
            ["int4_asym 100%", "int8 100%", "int4 100%"],
            [f"bit for bit the file's 100% {name}" for name in ("Q4_1", "Q8_0", "Q4_0")],
        ),
        (
            dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up"), Type.Q4_0)
            | {"output": Type.F16},
            ["int4 80% int4_asym 20%", "int4_asym 100%", "f16 100%"],
            [
                "bit for bit the file's 80% Q4_0, 20% Q4_1",
                "bit for bit the file's 100% Q4_1",
                "default for weights in 100% F16",
            ],
        ),
        (
            {"ffn_down": Type.Q5_0, "token_embd": Type.Q5_1, "output": Type.Q8_0},
            ["int4_asym 80% int8 20%", "int8 100%", "int8 100%"],
            [
                "bit for bit the file's 80% Q4_1, 20% Q5_0",
                "nearest to the file's 100% Q5_1",
                "bit for bit the file's 100% Q8_0",
            ],
        ),
    ],
)
def test_a_part_follows_its_blocks(
    tmp_path: Path, types: dict[str, Type], formats: list[str], reasons: list[str]
) -> None:
    _, found, why, warnings = decide(write_gguf(tmp_path / "model.gguf", types), FormatChoice())
    assert found == formats
    assert why == reasons
    assert warnings == [None] * 3


def test_each_matrix_follows_its_own_blocks(tmp_path: Path) -> None:
    types = {"ffn_down": Type.Q8_0, "attn_output": Type.F16, "attn_v": Type.Q5_0, "attn_q": Type.Q4_0}
    plan, (linear, *_), (why, *_), _ = decide(write_gguf(tmp_path / "model.gguf", types), FormatChoice())
    # What is one matrix here has one format: the finest that its parts need.
    expected = {"qkv": "int8", "o": "f16", "gate_up": "int4_asym", "down": "int8"}
    assert {name: format_of(plan, f"layers.1.{name}") for name in expected} == expected
    assert linear == "int8 47% int4_asym 40% f16 13%"
    assert why.startswith("nearest to the file's 47% Q4_1, 20% Q8_0")  # the Q4_1 beside Q5_0 became int8


UNREADABLE = {"Q8_1", "Q8_K", "Q1_0"}  # by the gguf package


@pytest.mark.parametrize("kind", [kind.name for kind, (columns, _) in gguf.GGML_QUANT_SIZES.items() if columns > 1])
def test_every_kind_of_blocks_has_a_format_of_about_its_size(kind: str) -> None:
    found = MatrixFormats({}, (), {"matrix": kind}).of("linear", ("matrix",))
    columns, size = gguf.GGML_QUANT_SIZES[Type[kind]]
    allowed = {"int4", "int4_asym", "int8"} if 8 * size / columns > 4 else FOUR_BIT
    assert kind in UNREADABLE or found in allowed


def test_plain_weights_take_the_default(family_checkpoints: dict[str, Path]) -> None:
    _, found, why, _ = decide(family_checkpoints["llama"], FormatChoice(embedding="f32"))
    assert found == ["int4 100%", "f32 100%", "f16 100%"]
    assert why == ["default for weights in 100% F32", "as asked for", "default for weights in 100% F32"]


def test_what_is_asked_for_holds_for_all_matrices(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", {"ffn_down": Type.Q8_0})
    _, found, why, _ = decide(path, FormatChoice(linear="int8"))
    assert (found[0], why[0]) == ("int8 100%", "as asked for")


@pytest.mark.parametrize(
    ("stored", "asked", "warns"),
    [
        (Type.Q4_1, "int4", True),
        (Type.Q4_1, "int8", False),
        (Type.Q4_1, "int4_asym", False),
        (Type.Q4_0, "int4_asym", False),
        (Type.Q5_0, "int4_asym", True),
        (Type.Q8_0, "int4", False),
    ],
)
def test_a_second_coarse_grid_is_warned_of(tmp_path: Path, stored: Type, asked: str, *, warns: bool) -> None:
    path = write_gguf(tmp_path / "model.gguf", {"output": stored})
    *_, warnings = decide(path, FormatChoice(lm_head=asked))
    expected = f"lm_head {asked} quantises the file's 100% {stored.name} a second time" if warns else "None"
    assert str(warnings[2]).startswith(expected)


def test_q4_0_is_exact_in_both_formats(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", {"attn_output": Type.Q4_0})
    source = GgufSource(path, build_on_meta(load_checkpoint(str(path)).config))
    for format_name in ("int4", "int4_asym"):
        np.testing.assert_array_equal(source.read_blocks(O_PROJ, format_name).dequantise(), source.read(O_PROJ))


def test_the_bundle_holds_the_files_values(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    tokenizer = save_model(tmp_path / "tokenizer", tiny_config("llama"))
    path = write_gguf(tmp_path / "model.gguf", {"attn_output": Type.Q4_0, "token_embd": Type.Q8_0})
    result = export(str(path), tmp_path / "out", options=ExportOptions(tokenizer=str(tokenizer), parity_tokens=32))
    parity = result.models[0].parity
    assert parity.original_kl == pytest.approx(parity.kl, rel=1e-3)  # the stored integers are the file's
    assert result.models[0].losses == ()
    model = result.manifest.models["target"]
    tensor = next(item for item in model.tensors if item.name == "layers.0.o")
    packed = np.fromfile(tmp_path / "out" / "target.bin", np.uint8, tensor.bytes, offset=tensor.offset)
    source = GgufSource(path, build_on_meta(load_checkpoint(str(path)).config))
    np.testing.assert_array_equal(unpack(packed, 64, 64, "int4"), source.read(O_PROJ))
    assert list(model.mixture) == ["int4_asym", "int4"]


def test_tables_by_layer_are_no_linear_layers(tmp_path: Path) -> None:
    checkpoint = save_model(tmp_path / "model", config_of("Gemma 4, embeddings by layer"))
    options = ExportOptions(target=FormatChoice("int8", "int4", "int4"), parity=False)
    result = export(str(checkpoint), tmp_path / "out", options=options)
    assert any("per_layer" in tensor.name for tensor in result.manifest.models["target"].tensors)
    assert result.manifest.models["target"].mixture == {"int8": 1.0}
    assert {item.part: dict(item.shares) for item in result.models[0].formats} == {
        "linear": {"int8": 1.0},
        "embedding": {"int4": 1.0},
        "lm_head": {"int4": 1.0},
    }


def test_the_command_says_what_was_chosen_and_warns(tmp_path: Path, cli: CommandLine) -> None:
    tokenizer = save_model(tmp_path / "tokenizer", tiny_config("llama"))
    path = write_gguf(tmp_path / "model.gguf", {"token_embd": Type.Q8_0})
    arguments = ("--tokenizer", tokenizer, "--no-parity", "--out", tmp_path / "out")
    finished = cli("export", path, "--draft", tokenizer, "--lm-head", "int4", *arguments)
    assert finished.exit_code == 0, finished.err
    assert "target linear: int4_asym, bit for bit the file's 100% Q4_1" in finished.out
    assert "drafts that were tried" in finished.out
    assert "draft linear: int4, promises most tokens a second" in finished.out
    assert "warning: target lm_head int4 quantises the file's 100% Q4_1 a second time" in finished.err
