"""Heads that do not fit their target, or are of a variant that no graph expresses, are refused with the reason."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import tiny_heads
import torch
from head_target import F32, HeadTarget, export_onto
from tiny_models import save_model, tiny_config

from pilotfish.exporter import export
from pilotfish.exporter.errors import CheckpointError, ExportError, OutputFullError, UnsupportedModelError
from pilotfish.exporter.heads import open_head

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> HeadTarget:
    torch.set_num_threads(1)
    return HeadTarget(tmp_path_factory.mktemp("refusals"), "llama")


WRONG = {
    "medusa_hidden": (tiny_heads.medusa, {"0.0.linear.weight": (32, 32)}, {}, r"0\.0\.linear\.weight is \[32, 32\]"),
    "medusa_vocabulary": (
        tiny_heads.medusa,
        {f"{head}.1.weight": (200, 64) for head in range(3)},
        {},
        "scores 200 ids; target has the 258",
    ),
    "medusa_taps": (tiny_heads.medusa, {}, {"stream_taps": [7]}, "into layers 7; .* of the target's 7, from 0"),
    "medusa_twice": (tiny_heads.medusa, {}, {"stream_taps": [3, 3]}, "into layers 3, 3; it may name different ones"),
    "medusa_no_streams": (tiny_heads.medusa, {}, {"stream_taps": [3]}, r"no tensor streams\.weight"),
    "medusa_streams": (
        lambda: tiny_heads.medusa(taps=(3, 4)),
        {},
        {"stream_taps": [3]},
        r"streams\.weight is \[64, 128\], expected \[64, 64\]",
    ),
    "medusa_unnamed": (lambda: tiny_heads.medusa(taps=(3,)), {}, {"stream_taps": None}, r"such as streams\.weight"),
    "medusa_missing": (tiny_heads.medusa, {"1.0.linear.bias": None}, {}, r"no tensor 1\.0\.linear\.bias"),
    "medusa_count": (tiny_heads.medusa, {}, {"medusa_num_heads": 5}, "medusa_num_heads = 5, .* it is 3"),
    "medusa_setting": (tiny_heads.medusa, {}, {"medusa_num_layers": None}, "lacks medusa_num_layers"),
    "mlp_hidden": (tiny_heads.mlp_speculator, {}, {"emb_dim": 80}, "emb_dim = 80, .* it is 64"),
    "mlp_vocabulary": (tiny_heads.mlp_speculator, {}, {"vocab_size": 200}, "vocab_size = 200, .* it is 258"),
    "mlp_missing": (tiny_heads.mlp_speculator, {"speculator.ln.2.bias": None}, {}, r"no tensor ln\.2\.bias"),
    "mlp_unknown": (tiny_heads.mlp_speculator, {"speculator.gate.0.weight": (96, 96)}, {}, r"such as gate\.0\.weight"),
    "eagle_hidden": (tiny_heads.eagle, {}, {"hidden_size": 128}, "hidden_size = 128, .* it is 64"),
    "eagle_vocabulary": (tiny_heads.eagle, {}, {"vocab_size": 200}, "vocab_size = 200, .* it is 258"),
    "eagle_missing": (tiny_heads.eagle, {"fc.weight": None}, {}, r"no tensor fc\.weight"),
    "eagle_layers": (tiny_heads.eagle, {}, {"num_hidden_layers": 2}, "has 2 layers"),
    "eagle_norm": (
        tiny_heads.eagle,
        {"layers.0.input_layernorm.weight": (64,)},
        {},
        "such as layers.0.input_layernorm",
    ),
    "eagle_rope": (
        tiny_heads.eagle,
        {},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        "rope type is 'dynamic'",
    ),
    "eagle3_taps": (
        tiny_heads.eagle3,
        {},
        {"eagle_aux_hidden_state_layer_ids": [2, 4, 99]},
        "layers 2, 4, 99 of a target that has 7",
    ),
    "eagle3_missing": (
        tiny_heads.eagle3,
        {"midlayer.mlp.up_proj.weight": None},
        {},
        r"no tensor midlayer\.mlp\.up_proj\.weight",
    ),
    "eagle3_no_map": (tiny_heads.eagle3, {"d2t": None}, {}, "scores 51 of 258 ids, but has no d2t"),
}


@pytest.mark.parametrize("name", WRONG)
def test_heads_that_do_not_fit(target: HeadTarget, tmp_path: Path, name: str) -> None:
    make, changes, settings, message = WRONG[name]
    tensors, config = make()
    for key, shape in changes.items():
        if shape is None:
            del tensors[key]
        else:
            tensors[key] = torch.zeros(shape)
    config = {key: value for key, value in (config | settings).items() if value is not None}
    head = tiny_heads.save_head(tmp_path / "head", tensors, config)
    with pytest.raises((CheckpointError, UnsupportedModelError), match=message):
        export_onto(target, head, tmp_path / "out")


@pytest.mark.parametrize("change", ["absolute", "t2d"])
def test_a_wrong_map_is_refused(target: HeadTarget, tmp_path: Path, change: str) -> None:
    tensors, config = tiny_heads.eagle3()
    if change == "absolute":  # ids instead of their differences from the rows
        tensors["d2t"] = torch.tensor(tiny_heads.DRAFT_IDS)
    else:
        tensors["t2d"][0] = True
    head = tiny_heads.save_head(tmp_path / "head", tensors, config)
    with pytest.raises(CheckpointError, match="difference between" if change == "absolute" else "t2d names other"):
        export_onto(target, head, tmp_path / "out")


def test_a_pickle_that_runs_code_is_not_read(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return (print, ("ran",))

    folder = tiny_heads.save_head(tmp_path / "head", {}, tiny_heads.medusa()[1], "medusa_lm_head.pt")
    torch.save({"0.0.linear.weight": Payload()}, folder / "medusa_lm_head.pt")
    with pytest.raises(CheckpointError, match="cannot be read as tensors alone"):
        open_head(str(folder))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", None, "cannot be read as tensors alone"),  # cut off
        ("model.safetensors.index.json", b"{}", r"index\.json names no files of tensors"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"0.0.linear.weight": "gone.safetensors"}}',
            "gone.safetensors",
        ),
        ("config.json", b"[]", "is not a JSON object"),
        ("config.json", b"{", "cannot be read"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    folder = tiny_heads.save_head(tmp_path / "head", *tiny_heads.medusa())
    path = folder / name
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(CheckpointError, match=message):
        open_head(str(folder))


def test_what_is_no_head(target: HeadTarget, tmp_path: Path) -> None:
    draft = save_model(tmp_path / "model", tiny_config("qwen3"))
    for path, message in (
        (draft, "(no head of a known layout|more|lacks|does not use)"),
        (tmp_path / "missing", "neither a folder nor|does not exist"),
    ):
        with pytest.raises(ExportError, match=message):
            export(str(target.folder), tmp_path / "out", head=str(path), options=F32)
        assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing(target: HeadTarget, tmp_path: Path) -> None:
    head = tiny_heads.save_head(tmp_path / "head", *tiny_heads.medusa())
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        with pytest.raises(OutputFullError, match=r"the disk is full while writing .*out; free some space"):
            export(str(target.folder), disk / "out", head=str(head), options=F32)
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", str(disk)], check=True)
