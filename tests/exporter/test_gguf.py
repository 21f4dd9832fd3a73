"""GGUF checkpoints: row orders, and blocks taken over bit for bit."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tiny_gguf import finish
from tiny_models import save_model, save_tokenizer, tiny_config
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, ModelFormats, check_bundle, export
from pilotfish.exporter.gguf import GgufSource
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.quantise import Quantised, quantise
from pilotfish.exporter.sources import SafetensorsSource
from pilotfish.exporter.trace import build_on_meta

SAMPLES = Path(__file__).parents[2] / "samples"
QUERY = "model.layers.1.self_attn.q_proj.weight"
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_model(tmp_path_factory.mktemp("gguf") / "model", tiny_config("llama_tied", pad_token_id=257))


@pytest.fixture(scope="module")
def packed(checkpoint: Path) -> Path:
    """The checkpoint as samples/pack_draft.py writes it."""
    spec = importlib.util.spec_from_file_location("pack_draft", SAMPLES / "pack_draft.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    out = checkpoint.parent / "packed.gguf"
    program.main(checkpoint, out)
    return out


@pytest.fixture(scope="module")
def source(packed: Path) -> GgufSource:
    return GgufSource(packed, build_on_meta(load_checkpoint(str(packed)).config))


def test_rows_come_back_in_the_checkpoints_order(source: GgufSource, checkpoint: Path) -> None:
    original = SafetensorsSource(checkpoint)
    for name in original.names():
        rows = original.read(name)
        if rows.ndim == 1:
            np.testing.assert_array_equal(source.read(name), rows)
        else:
            expected = quantise(rows, "int4" if name == EMBEDDING else "int8").dequantise()
            np.testing.assert_array_equal(source.read(name), expected)


def test_transformers_reads_the_same_weights(source: GgufSource, packed: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(packed.parent, gguf_file=packed.name, dtype=torch.float32)
    for name, weight in model.named_parameters():
        np.testing.assert_array_equal(source.read(name), weight.detach().numpy())


@pytest.mark.parametrize(("name", "format_name"), [(QUERY, "int8"), (EMBEDDING, "int4")])
def test_blocks_are_taken_over_bit_for_bit(source: GgufSource, checkpoint: Path, name: str, format_name: str) -> None:
    stored = source.read_blocks(name, format_name)
    expected = quantise(SafetensorsSource(checkpoint).read(name), format_name)
    np.testing.assert_array_equal(stored.codes, expected.codes)
    np.testing.assert_array_equal(stored.scale, expected.scale)


def test_other_formats_are_requantised(source: GgufSource) -> None:
    assert source.read_blocks(QUERY, "int4") is None
    assert source.read_blocks(QUERY, "int4_asym") is None
    assert source.read_blocks(EMBEDDING, "f16") is None


def test_q4_1_is_int4_asym_bit_for_bit(tmp_path: Path) -> None:
    rows = np.random.default_rng(5).standard_normal((64, 64)).astype(np.float32)
    data = gguf.quantize(rows, gguf.GGMLQuantizationType.Q4_1)
    source, name = _one_tensor_file(tmp_path / "one.gguf", data)
    stored = source.read_blocks(name, "int4_asym")
    assert isinstance(stored, Quantised)
    np.testing.assert_array_equal(stored.dequantise(), gguf.dequantize(data, gguf.GGMLQuantizationType.Q4_1))


def _one_tensor_file(path: Path, data: np.ndarray) -> tuple[GgufSource, str]:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.attn_output.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    finish(writer)
    return GgufSource(path, build_on_meta(tiny_config("llama"))), "model.layers.0.self_attn.o_proj.weight"


def test_a_gguf_draft_without_tokenizer_exports(packed: Path, checkpoint: Path, tmp_path: Path) -> None:
    options = ExportOptions(target=ModelFormats("f16", "f16", "f16"), parity_tokens=48)
    result = export(str(checkpoint), tmp_path / "out", draft=str(packed), options=options)
    draft = check_bundle(tmp_path / "out").models["draft"]
    assert draft.source.licence == "apache-2.0"
    assert len(draft.source.sha256) == 64
    assert result.models[1].parity.original_kl < 0.01  # int8 and int4 blocks as they are: only activations round


def test_stop_ids_come_from_every_place(tmp_path: Path) -> None:
    from transformers import GenerationConfig

    checkpoint = save_model(tmp_path / "model", tiny_config("llama"))
    save_tokenizer(checkpoint, pad_token="a")  # noqa: S106 - a token of the vocabulary
    GenerationConfig(eos_token_id=[257, 10]).save_pretrained(checkpoint)
    tokenizer = load_checkpoint(str(checkpoint)).tokenizer
    assert tokenizer.eos_ids == (257, 10)
    assert (tokenizer.bos_id, tokenizer.add_bos, tokenizer.size) == (256, False, 258)
    assert tokenizer.pad_id is not None
