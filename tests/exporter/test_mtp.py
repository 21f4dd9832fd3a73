"""Multi-token prediction layers of a target's own checkpoint: read in published layouts, and run against torch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from head_runs import TOLERANCE, assert_close, run, run_steps, tap
from head_target import F32, IDS, NUM_LAYERS, HeadTarget, export_onto
from reference import heads as reference
from safetensors.torch import load_file, save_file
from tiny_models import save_model, tiny_config
from tiny_mtp import LAYOUTS, add_mtp, part

from pilotfish.exporter import check_bundle, export
from pilotfish.exporter.errors import CheckpointError, UnsupportedModelError

if TYPE_CHECKING:
    from pathlib import Path

FAMILY_OF = {"qwen3_next": "qwen3", "deepseek": "llama", "mimo": "qwen2"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_mtp_layer_of_the_target(tmp_path: Path, name: str) -> None:
    target = HeadTarget(tmp_path, FAMILY_OF[name])
    tensors, layout = add_mtp(target.folder, name), LAYOUTS[name]
    head = export_onto(target, target.folder, tmp_path / "out")
    assert (head.kind, head.taps, head.num_predictions) == ("mtp", (NUM_LAYERS,), 0)
    features = run(tmp_path / "out", "features", tap(target, head))["features"]
    assert_close(features, target.state)
    found = run_steps(tmp_path / "out", head, features)
    config = json.loads((target.folder / "config.json").read_text(encoding="utf-8"))
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    embedding, output = (
        part(tensors, share, NUM_LAYERS, own)
        for share, own in zip(layout.shares, (target.embedding, target.lm_head), strict=True)
    )
    token = embedding[torch.tensor([*IDS[1:], 42])]
    state, normed = reference.mtp(token, target.state, tensors, config, layout, NUM_LAYERS)
    assert_close(found["next_features"], state)
    assert_close(found["logits"], normed @ output.T)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_bundle_with_the_layer_of_its_own_target(tmp_path: Path, name: str) -> None:
    folder = save_model(tmp_path / "model", tiny_config(FAMILY_OF[name]))
    add_mtp(folder, name)
    plain = export(str(folder), tmp_path / "plain", options=replace(F32, head_format=None))
    result = export(str(folder), tmp_path / "out", head=str(folder), options=replace(F32, parity=True))
    assert result.head.parity.max_difference < TOLERANCE
    assert result.manifest.models["target"].weights == plain.manifest.models["target"].weights
    assert check_bundle(tmp_path / "out").head.kind == "mtp"


WRONG = {
    "experts": ({"model.layers.2.mlp.experts.0.gate_proj.weight": (96, 64)}, {}, "is a mixture of experts"),
    "latent": ({"model.layers.2.self_attn.kv_a_proj_with_mqa.weight": (32, 64)}, {}, "multi-head latent attention"),
    "gate": ({"model.layers.2.self_attn.q_proj.weight": (128, 64)}, {}, "output gate"),
    "two": ({"model.layers.3.eh_proj.weight": (64, 128)}, {}, "further MTP layers"),
    "window": ({}, {"sliding_window": 24}, "sliding windows"),
    "rotary": ({}, {"partial_rotary_factor": 0.5}, "rotates 0.5 of each"),
    "shape": ({"model.layers.2.eh_proj.weight": (64, 64)}, {}, r"eh_proj\.weight is \[64, 64\], expected \[64, 128\]"),
    "missing": ({"model.layers.2.hnorm.weight": None}, {}, r"no tensor model\.layers\.2\.hnorm"),
    "unknown": ({"model.layers.2.mlp.shared.weight": (4,)}, {}, r"such as model\.layers\.2\.mlp\.shared"),
    "width": ({}, {"hidden_size": 32}, "belongs to the model that it came with"),
}


@pytest.mark.parametrize("name", WRONG)
def test_layers_that_are_refused(tmp_path: Path, name: str) -> None:
    changes, settings, message = WRONG[name]
    target = save_model(tmp_path / "target", tiny_config("llama"))
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    add_mtp(folder, "deepseek")
    tensors = load_file(folder / "model.safetensors")
    for key, shape in changes.items():
        if shape is None:
            del tensors[key]
        else:
            tensors[key] = torch.zeros(shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | settings), encoding="utf-8")
    with pytest.raises((CheckpointError, UnsupportedModelError), match=message):
        export(str(target), tmp_path / "out", head=str(folder), options=F32)
    assert not (tmp_path / "out").exists()


def test_only_the_layers_tensors_are_read(tmp_path: Path) -> None:
    """A large target's own weights are many gigabytes: here they are in a file that is not even there."""
    folder = save_model(tmp_path / "model", tiny_config("llama"))
    tensors = add_mtp(folder, "deepseek")
    save_file(tensors, folder / "part-2.safetensors")
    names = dict.fromkeys(load_file(folder / "model.safetensors"), "part-1.safetensors")
    names |= dict.fromkeys(tensors, "part-2.safetensors")
    (folder / "model.safetensors").unlink()
    index = json.dumps({"metadata": {}, "weight_map": names})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    target = HeadTarget(tmp_path / "other", "llama", num_layers=2)
    head = export_onto(target, folder, tmp_path / "out")
    found = run(tmp_path / "out", "features", tap(target, head))["features"]
    np.testing.assert_allclose(found, target.state.numpy(), atol=TOLERANCE, rtol=TOLERANCE)
