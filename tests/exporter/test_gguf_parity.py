"""The parity check reads a GGUF file by another way than the exporter, so that it sees faults of its reader."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch
from tiny_gguf import FAMILIES, Type, llama3_freqs, write_gguf
from tiny_models import save_model, tiny_config
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, FormatChoice, export
from pilotfish.exporter.errors import ParityError
from pilotfish.exporter.gguf import GgufReference, reference_file
from pilotfish.exporter.gguf import config as gguf_config
from pilotfish.exporter.gguf import source as gguf_source
from pilotfish.exporter.gguf.families import FAMILIES as FAMILIES_READ

if TYPE_CHECKING:
    from pathlib import Path

IDS = list(range(1, 120))


def export_file(path: Path, tokenizer: Path, linear: str | None = None) -> Any:
    options = ExportOptions(
        target=FormatChoice(linear, "f16", "f16"),
        tokenizer=str(tokenizer),
        cache_dtype="f32",
        parity_tokens=120,
        overwrite=True,
    )
    return export(str(path), path.parent / "out", options=options).models[0].parity


@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_reading_is_what_transformers_computes(
    family: str, family_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    folder = family_checkpoints[family]
    extra = {"rope_freqs.weight": llama3_freqs(folder)} if family == "llama3_rope" else {}
    found = GgufReference([write_gguf(folder, tmp_path / "model.gguf", extra=extra)]).logits(IDS)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([IDS])).logits[0].numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(
    "scaling",
    [
        {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 4.0},
        {
            "{arch}.rope.scaling.type": "yarn",
            "{arch}.rope.scaling.factor": 4.0,
            "{arch}.rope.scaling.original_context_length": 64,
        },
    ],
)
def test_scaled_frequencies_are_read_twice_the_same(
    scaling: dict[str, Any], family_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    path = write_gguf(family_checkpoints["qwen2"], tmp_path / "model.gguf", fields=scaling)
    assert export_file(path, family_checkpoints["qwen2"], "f16").original_kl < 1e-4
    plain = write_gguf(family_checkpoints["qwen2"], tmp_path / "plain.gguf")
    assert np.abs(GgufReference([plain]).logits(IDS) - GgufReference([path]).logits(IDS)).max() > 0.1


def test_dropped_rope_factors_are_seen(
    family_checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = family_checkpoints["llama3_rope"]
    path = write_gguf(folder, tmp_path / "model.gguf", extra={"rope_freqs.weight": llama3_freqs(folder)})
    assert export_file(path, folder, "int4").original_kl > 0  # however coarse the format is
    monkeypatch.setattr(gguf_config, "rope_parameters", lambda *_: {"rope_theta": 1e4, "rope_type": "default"})
    with pytest.raises(ParityError, match="gives other logits when it is read by another way"):
        export_file(path, folder, "int4")


@pytest.mark.parametrize("types", [Type.F32, Type.Q4_1, Type.Q8_0])
def test_rows_in_the_wrong_order_are_seen(
    types: Type, family_checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", type_of=lambda _: types)
    monkeypatch.setitem(FAMILIES_READ, "llama", replace(FAMILIES_READ["llama"], pairs=()))
    with pytest.raises(ParityError, match="gives other logits when it is read by another way"):
        export_file(path, family_checkpoints["llama"])


def test_wrong_blocks_are_seen(
    family_checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", type_of=lambda _: Type.Q8_0)
    own = gguf_source.GgufSource.read_blocks
    folder = family_checkpoints["llama"]

    def doubled(source: Any, name: str, format_name: str) -> Any:
        blocks = own(source, name, format_name)
        if blocks is not None and name.endswith("layers.1.mlp.down_proj.weight"):
            blocks.scale[:, 1:] *= 2
        return blocks

    monkeypatch.setattr(gguf_source.GgufSource, "read_blocks", doubled)
    with pytest.raises(
        ParityError, match=r"layers\.1\.mlp\.down_proj\.weight, Q8_0 in the checkpoint, is stored as int8"
    ):
        export_file(path, folder)


def test_what_quantisation_costs_is_told_apart_from_rounding(
    family_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    path = write_gguf(family_checkpoints["llama"], tmp_path / "model.gguf", type_of=lambda _: Type.Q8_0)
    parity = export_file(path, family_checkpoints["llama"])
    assert parity.weights_kl < 1e-6 < parity.kl  # the blocks are the file's; activations are rounded
    assert parity.weights_top1_agreement == 1.0


def test_a_mix_of_k_blocks_loses_little(tmp_path: Path) -> None:
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
    folder = save_model(tmp_path / "model", tiny_config("llama", **shape))
    finer = ("blk.1.attn_v.weight", "blk.1.ffn_down.weight", "output.weight", "token_embd.weight")
    path = write_gguf(folder, tmp_path / "model.gguf", type_of=lambda name: Type.Q6_K if name in finer else Type.Q4_K)
    options = ExportOptions(tokenizer=str(folder), parity_tokens=120)
    model = export(str(path), tmp_path / "out", options=options).models[0]
    assert dict(model.formats[0].shares) == pytest.approx({"int4_asym": 7 / 9, "int8": 2 / 9})
    assert model.parity.weights_kl < 1e-2  # random weights spread an error more than trained ones do
    errors = {(loss.stored_type, loss.format): loss.relative_error for loss in model.losses}
    assert errors.keys() == {("Q4_K", "int4_asym"), ("Q4_K", "int8"), ("Q6_K", "int8")}
    assert errors["Q4_K", "int4_asym"] < 1e-3  # f16 rounds scales and offsets, which nearly cancel, by up to 5e-4 each
    assert max(errors["Q4_K", "int8"], errors["Q6_K", "int8"]) < 0.01


def test_blocks_with_an_outlier_are_taken_over_though_their_offsets_are_rounded(tmp_path: Path) -> None:
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
    folder = save_model(tmp_path / "model", tiny_config("llama", **shape))
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.weight[:, ::32] = -1.0
    model.save_pretrained(folder)
    path = write_gguf(
        folder, tmp_path / "model.gguf", type_of=lambda name: Type.Q4_K if "ffn_down" in name else Type.Q6_K
    )
    options = ExportOptions(tokenizer=str(folder), parity_tokens=120)
    losses = export(str(path), tmp_path / "out", options=options).models[0].losses
    error = next(loss.relative_error for loss in losses if loss.stored_type == "Q4_K")
    assert 1e-3 < error < 1e-2  # scale * code and offset nearly cancel, 31 times a block


def test_lists_of_texts_are_passed_over_and_nothing_else_is(
    family_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    texts = {"tokenizer.ggml.tokens": ["a", "", "\u2603 and more"] * 7, "{arch}.a.list": [1, 2, 3], "general.name": "x"}
    path = write_gguf(family_checkpoints["qwen2"], tmp_path / "model.gguf", fields=texts)
    ours, theirs = reference_file._Reader(path), gguf.GGUFReader(path)
    assert list(ours.fields) == list(theirs.fields)
    found, expected = (
        {key: field.contents() for key, field in reader.fields.items() if key != "tokenizer.ggml.tokens"}
        for reader in (ours, theirs)
    )
    assert found == expected
    places = (
        [(each.name, each.data_offset, each.shape.tolist()) for each in reader.tensors] for reader in (ours, theirs)
    )
    assert next(places) == next(places)


def test_rows_are_looked_up_in_the_order_of_ids(family_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    path = write_gguf(family_checkpoints["qwen2"], tmp_path / "model.gguf", type_of=lambda _: Type.Q8_0)
    file = reference_file.ReferenceFile([path])
    ids = [5, 0, 17, 5]
    assert torch.equal(file.look_up("token_embd.weight", ids), file.read("token_embd.weight")[torch.tensor(ids)])
