"""Published head layouts, written with random weights, exported, and run against the papers' arithmetic."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tiny_heads
import torch
from head_runs import TOLERANCE, assert_close, run, run_steps, tap
from head_target import F32, IDS, NUM_LAYERS, HeadTarget, export_onto
from reference import heads as reference

from pilotfish.exporter import ExportOptions, check_bundle, export
from pilotfish.exporter.errors import BundleCorruptError, ParityError
from pilotfish.exporter.heads.graph_builder import GraphBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine


@pytest.fixture(scope="module", params=["llama", "llama_tied"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HeadTarget:
    torch.set_num_threads(1)
    return HeadTarget(tmp_path_factory.mktemp("heads"), request.param)


@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors", "model.safetensors"])
@pytest.mark.parametrize(("num_blocks", "shared"), [(1, False), (2, False), (1, True)])
def test_medusa(target: HeadTarget, tmp_path: Path, file: str, num_blocks: int, *, shared: bool) -> None:
    tensors, config = tiny_heads.medusa(3, num_blocks, shared_output=shared)
    head = export_onto(target, tiny_heads.save_head(tmp_path / "head", tensors, config, file), tmp_path / "out")
    assert (head.kind, head.num_predictions, head.taps, head.cache) == ("medusa", 3, (NUM_LAYERS,), None)
    assert list(head.graphs) == ["heads"]
    found = run(tmp_path / "out", "heads", tap(target, head))
    assert sorted(found) == ["logits.0", "logits.1", "logits.2"]
    for index in range(3):
        expected = reference.medusa_logits(target.state, tensors, index, num_blocks, target.lm_head)
        assert_close(found[f"logits.{index}"], expected)


@pytest.mark.parametrize("kind", ["medusa", "mlp_speculator"])
@pytest.mark.parametrize("taps", [(3,), (4, 0, 2)])
def test_heads_with_taps(target: HeadTarget, tmp_path: Path, kind: str, taps: tuple[int, ...]) -> None:
    tensors, config = getattr(tiny_heads, kind)(taps=taps)
    head = export_onto(target, tiny_heads.save_head(tmp_path / "head", tensors, config), tmp_path / "out")
    assert head.taps == (*taps, NUM_LAYERS)
    state = reference.with_streams(target.state, target.streams, tensors, config)
    if kind == "medusa":
        expected = reference.medusa_logits(state, tensors, 0, 1, target.lm_head)
        assert_close(run(tmp_path / "out", "heads", tap(target, head))["logits.0"], expected)
    else:
        _, expected = reference.mlp_stages(state, torch.tensor(IDS)[:, None].expand(-1, 3), tensors, config)[0]
        inputs = tap(target, head) | {"input_ids": np.array(IDS, np.int32)}
        assert_close(run(tmp_path / "out", "stage.0", inputs)["logits"], expected)


@pytest.mark.parametrize(("tie", "scale"), [(False, True), (False, False), (True, True), (True, False)])
def test_mlp_speculator(target: HeadTarget, tmp_path: Path, *, tie: bool, scale: bool) -> None:
    tensors, config = tiny_heads.mlp_speculator(tie=tie, scale_input=scale)
    head = export_onto(target, tiny_heads.save_head(tmp_path / "head", tensors, config), tmp_path / "out")
    assert (head.kind, head.num_predictions, head.state_size) == ("mlp_speculator", 3, 96)
    assert list(head.graphs) == ["stage.0", "stage.1", "stage.2"]
    embeddings = [tensor for tensor in head.tensors if tensor.name.startswith("emb.")]
    assert len(embeddings) == (1 if tie else 3)
    tokens = torch.tensor([[5, 6, 7], *([[token, 2 * token % 250, 11] for token in IDS[1:]])])
    state = tap(target, head)
    for stage, (next_state, logits) in enumerate(reference.mlp_stages(target.state, tokens, tensors, config)):
        found = run(tmp_path / "out", f"stage.{stage}", {**state, "input_ids": tokens[:, stage].int().numpy()})
        assert_close(found["next_state"], next_state)
        assert_close(found["logits"], logits)
        state = {"state": found["next_state"]}


@pytest.mark.parametrize(("embedding", "bias"), [(True, True), (False, False)])
def test_eagle(target: HeadTarget, tmp_path: Path, *, embedding: bool, bias: bool) -> None:
    tensors, config = tiny_heads.eagle(embedding=embedding, bias=bias)
    head_folder = tiny_heads.save_head(tmp_path / "head", tensors, config, "pytorch_model.bin")
    head = export_onto(target, head_folder, tmp_path / "out")
    assert (head.kind, head.taps, head.num_logits, head.logit_ids) == ("eagle", (NUM_LAYERS,), 258, None)
    assert (head.cache.num_heads, head.cache.num_kv_heads, head.cache.head_dim) == (4, 2, 16)
    features = run(tmp_path / "out", "features", tap(target, head))["features"]
    assert_close(features, target.state)
    found = run_steps(tmp_path / "out", head, features)
    tokens = torch.tensor([*IDS[1:], 42])
    state, logits = reference.eagle(
        tokens, target.state, tensors, config, embedding=target.embedding, lm_head=target.lm_head
    )
    assert_close(found["next_features"], state)
    assert_close(found["logits"], logits)


@pytest.mark.parametrize("mapped", [True, False])
def test_eagle3(target: HeadTarget, tmp_path: Path, *, mapped: bool) -> None:
    tensors, config = tiny_heads.eagle3(mapped=mapped)
    head = export_onto(target, tiny_heads.save_head(tmp_path / "head", tensors, config), tmp_path / "out")
    assert (head.kind, head.taps) == ("eagle3", (2, 3, 4))
    assert head.logit_ids == (tiny_heads.DRAFT_IDS if mapped else None)
    assert head.num_logits == (len(tiny_heads.DRAFT_IDS) if mapped else 258)
    features = run(tmp_path / "out", "features", tap(target, head))["features"]
    expected = reference.eagle3_features([target.streams[index] for index in (2, 3, 4)], tensors)
    assert_close(features, expected)
    found = run_steps(tmp_path / "out", head, features)
    state, logits = reference.eagle3(torch.tensor([*IDS[1:], 42]), expected, tensors, config)
    assert_close(found["next_features"], state)
    assert_close(found["logits"], logits)


def test_eagle3_reads_the_layers_its_config_names(target: HeadTarget, tmp_path: Path) -> None:
    tensors, config = tiny_heads.eagle3()
    config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}
    head = tiny_heads.save_head(tmp_path / "head", tensors, config)
    export(str(target.folder), tmp_path / "out", head=str(head), options=F32)
    manifest = check_bundle(tmp_path / "out")
    assert manifest.models["target"].taps == manifest.head.taps == (1, 3, 6)


@pytest.mark.parametrize("kind", ["medusa", "mlp_speculator", "eagle", "eagle3"])
def test_low_bit_heads_stay_close(target: HeadTarget, tmp_path: Path, kind: str) -> None:
    head = tiny_heads.save_head(tmp_path / "head", *getattr(tiny_heads, kind)())
    options = ExportOptions(head_format="int8", parity=False, cache_dtype="f32")
    low = export_onto(target, head, tmp_path / "out", options)
    exact = export_onto(target, head, tmp_path / "exact")
    assert low.weights.bytes < exact.weights.bytes
    role = next(iter(low.graphs))
    inputs = tap(target, low) | ({"input_ids": np.array(IDS, np.int32)} if kind == "mlp_speculator" else {})
    found, expected = (run(tmp_path / name, role, inputs) for name in ("out", "exact"))
    for name, values in expected.items():
        assert np.abs(found[name] - values).mean() < 0.05 * np.abs(values).mean()


def test_a_heads_files_are_checked(target: HeadTarget, tmp_path: Path) -> None:
    head = tiny_heads.save_head(tmp_path / "head", *tiny_heads.medusa())
    export(str(target.folder), tmp_path / "out", head=str(head), options=F32)
    data = bytearray((tmp_path / "out" / "head.bin").read_bytes())
    data[100] ^= 1
    (tmp_path / "out" / "head.bin").write_bytes(data)
    with pytest.raises(BundleCorruptError, match=r"head\.bin has sha256"):
        check_bundle(tmp_path / "out")


def test_the_command_exports_a_head(target: HeadTarget, tmp_path: Path, cli: CommandLine) -> None:
    head = tiny_heads.save_head(tmp_path / "medusa", *tiny_heads.medusa())
    finished = cli(
        "export", target.folder, "--head", head, "--head-format", "int4", "--no-parity", "--out", tmp_path / "o"
    )
    assert finished.exit_code == 0, finished.err
    assert "head: medusa from medusa" in finished.out
    assert check_bundle(tmp_path / "o").head.format == "int4"


@pytest.mark.parametrize("kind", ["medusa", "mlp_speculator", "eagle", "eagle3"])
def test_an_export_compares_the_head_with_torch(target: HeadTarget, tmp_path: Path, kind: str) -> None:
    head = tiny_heads.save_head(tmp_path / "head", *getattr(tiny_heads, kind)())
    result = export(str(target.folder), tmp_path / "out", head=str(head), options=replace(F32, parity=True))
    parity = result.head.parity
    assert parity.max_difference < TOLERANCE
    assert parity.original_max_difference < TOLERANCE
    assert parity.top1_agreement == 1
    assert check_bundle(tmp_path / "out").head.parity == asdict(parity)


@pytest.mark.parametrize("kind", ["medusa", "mlp_speculator", "eagle", "eagle3"])
def test_an_export_fails_when_the_head_differs_from_torch(
    target: HeadTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    tensors, config = getattr(tiny_heads, kind)()
    head = tiny_heads.save_head(tmp_path / "head", tensors, config)
    linear = GraphBuilder.linear

    def wrong(self: GraphBuilder, x: Any, name: str, sources: Any, **options: Any) -> Any:
        result = linear(self, x, name, sources, **options)
        return self.silu_and_add(result, result) if name.startswith("lm_head") else result

    monkeypatch.setattr(GraphBuilder, "linear", wrong)
    with pytest.raises(ParityError, match="head differs from torch on the same integers"):
        export(str(target.folder), tmp_path / "out", head=str(head), options=replace(F32, parity=True))
    assert not (tmp_path / "out").exists()
