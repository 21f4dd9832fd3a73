"""A target's taps: the residual streams that heads read, checked against torch so that none is off by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
import torch
from tiny_heads import medusa, save_head
from tiny_models import save_model, tiny_config
from transformers import AutoModelForCausalLM

from pilotfish.exporter import ExportOptions, ModelFormats, check_bundle, contract, export, passes
from pilotfish.exporter.errors import ParityError
from pilotfish.exporter.parity import graph_outputs

if TYPE_CHECKING:
    from pathlib import Path

NUM_LAYERS = 4
TAPS = (0, 1, 2, 3, 4)
F32 = ExportOptions(target=ModelFormats("f32", "f32", "f32"), cache_dtype="f32", head_format="f32", parity_tokens=24)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_model(tmp_path_factory.mktemp("taps") / "model", tiny_config("llama", num_hidden_layers=NUM_LAYERS))


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_head(tmp_path_factory.mktemp("head") / "medusa", *medusa())


@pytest.fixture
def all_taps(monkeypatch: pytest.MonkeyPatch) -> None:
    from pilotfish.exporter import pipeline

    monkeypatch.setattr(pipeline, "taps_of", lambda *_: TAPS)


@pytest.mark.usefixtures("all_taps")
def test_taps_are_transformers_hidden_states(checkpoint: Path, head: Path, tmp_path: Path) -> None:
    out = export(str(checkpoint), tmp_path / "out", head=str(head), options=F32).folder
    ids = list(range(40, 70))
    names = [contract.aux_hidden(tap) for tap in TAPS]
    logits, *found = graph_outputs(out / "target.onnx", ids, "f32", ["logits", *names])
    model = AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager")
    normed = []
    model.model.norm.register_forward_pre_hook(lambda _, arguments: normed.append(arguments[0][0].detach()))
    with torch.no_grad():
        result = model(torch.tensor([ids]), output_hidden_states=True)
    expected = [*(state[0] for state in result.hidden_states[:NUM_LAYERS]), normed[0]]
    for tap, stream in zip(found, expected, strict=True):
        np.testing.assert_allclose(tap, stream.numpy(), atol=2e-4, rtol=2e-4)
    np.testing.assert_allclose(logits, result.logits[0].numpy(), atol=2e-4, rtol=2e-4)


@pytest.mark.usefixtures("all_taps")
def test_the_bundle_has_reference_values(checkpoint: Path, head: Path, tmp_path: Path) -> None:
    export(str(checkpoint), tmp_path / "out", head=str(head), options=F32)
    target = check_bundle(tmp_path / "out").models["target"]
    reference = target.tap_reference
    assert target.taps == TAPS
    assert (len(reference.ids), len(reference.values)) == (16, 5)
    names = [contract.aux_hidden(tap) for tap in TAPS]
    found = graph_outputs(tmp_path / "out" / "target.onnx", list(reference.ids), "f32", names)
    for tap, values in zip(found, reference.values, strict=True):
        np.testing.assert_allclose(tap[-1, : len(values)], values, atol=2e-4, rtol=2e-4)


@pytest.mark.usefixtures("all_taps")
@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("linear", ["f32", "int4"])
def test_a_tap_off_by_one_fails(
    checkpoint: Path, head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shift: int, linear: str
) -> None:
    def shifted(model: ir.Model, taps: tuple[int, ...]) -> list[ir.Value]:
        return gather_taps(model, [min(max(tap + shift, 0), NUM_LAYERS) for tap in taps])

    gather_taps = passes.gather_taps
    monkeypatch.setattr(passes, "gather_taps", shifted)
    options = ExportOptions(target=ModelFormats(linear, "f32", "f32"), parity_tokens=24)
    with pytest.raises(ParityError, match=r"aux_hidden\.\d differs from torch's stream into layer \d"):
        export(str(checkpoint), tmp_path / "out", head=str(head), options=options)


def test_whoever_binds_no_rows_runs_without_taps(checkpoint: Path, head: Path, tmp_path: Path) -> None:
    with_head = export(str(checkpoint), tmp_path / "head", head=str(head), options=F32).folder
    without = export(str(checkpoint), tmp_path / "plain", options=replace(F32, head_format=None)).folder
    ids = list(range(30, 50))
    found, expected = (
        graph_outputs(folder / "target.onnx", ids, "f32", ["logits"])[0] for folder in (with_head, without)
    )
    np.testing.assert_array_equal(found, expected)
    graph = ir.load(with_head / "target.onnx").graph
    assert [value.name for value in graph.outputs] == ["logits", contract.aux_hidden(NUM_LAYERS)]
    assert graph.initializers[contract.HIDDEN_ROWS.name].const_value.numpy().size == 0


def test_the_engine_decodes_a_bundle_with_a_head(checkpoint: Path, head: Path, tmp_path: Path) -> None:
    from pilotfish import Engine

    options = ExportOptions(parity=False)
    outputs = []
    for name, path in (("plain", None), ("head", str(head))):
        folder = export(str(checkpoint), tmp_path / name, head=path, options=options).folder
        with Engine(folder, threads=1) as engine:
            outputs.append(engine.generate("hello", max_new_tokens=12).token_ids)
    assert outputs[0] == outputs[1]
