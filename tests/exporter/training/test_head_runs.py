"""Runs of heads: exact continuation, a start from another head, shared text, 8-bit files, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_training import HEADS, TEXT_ONLY

from pilotfish.exporter import ExportOptions, export
from pilotfish.exporter.errors import CheckpointError
from pilotfish.exporter.heads import open_head
from pilotfish.exporter.options import FormatChoice
from pilotfish.exporter.training import EagleShape, MedusaShape, Stage, TimeLimitReached, evaluate_draft, train
from pilotfish.exporter.training.errors import DataError, DivergedError, TrainingOptionError

if TYPE_CHECKING:
    from tiny_training import MakeOptions, TrainedHead


def test_head_continues_exactly(make_options: MakeOptions, tmp_path: Path) -> None:
    # noise is drawn in every step: the random state has to continue as well
    shape = EagleShape(version=1, unroll=2, noise=0.1, regression=1.0, ffn_size=32)
    whole = train(make_options(shape=shape, out=tmp_path / "whole", **TEXT_ONLY))
    for _ in range(3):
        with pytest.raises(TimeLimitReached, match="of the text stage"):
            train(make_options(shape=shape, out=tmp_path / "limited", time_limit_s=1e-3, **TEXT_ONLY))
    continued = train(make_options(shape=shape, out=tmp_path / "limited", **TEXT_ONLY))
    assert [point.loss for point in continued.record.history] == [point.loss for point in whole.record.history]
    assert (continued.folder / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()


def test_initial_head_is_where_training_starts(make_options: MakeOptions, trained: TrainedHead) -> None:
    before = trained("eagle3")
    options = make_options(shape=HEADS["eagle3"], initial=before.folder, **TEXT_ONLY)
    first, untrained = train(options).record.history[0], before.record.history[0]
    assert first.loss < 0.97 * untrained.loss


def test_initial_head_learns_to_score_other_tokens(
    make_options: MakeOptions, trained: TrainedHead, tmp_path: Path
) -> None:
    fewer = dataclasses.replace(HEADS["eagle3"], draft_vocab=24)
    first = train(make_options(shape=fewer, initial=trained("eagle3").folder, out=tmp_path / "first", **TEXT_ONLY))
    assert load_file(first.folder / "model.safetensors")["lm_head.weight"].shape[0] == 24
    more = dataclasses.replace(HEADS["eagle3"], draft_vocab=40)
    stages = {**TEXT_ONLY, "text": Stage(48, 1, 1e-9, 0)}
    second = train(make_options(shape=more, initial=first.folder, out=tmp_path / "second", **stages))
    before, after = (load_file(result.folder / "model.safetensors") for result in (first, second))
    known, scored = (tensors["d2t"] + torch.arange(len(tensors["d2t"])) for tensors in (before, after))
    assert set(known.tolist()) < set(scored.tolist())
    rows, expected = after["lm_head.weight"].float(), before["lm_head.weight"].float()
    is_known = torch.isin(scored, known)
    torch.testing.assert_close(rows[is_known], expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(rows[~is_known], expected.mean(0).expand(16, -1), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (MedusaShape(num_heads=2, num_blocks=2), "no place for, such as 2.0.linear.bias"),
        (MedusaShape(num_heads=3, num_blocks=3), r"tensor 0.2.linear.weight is missing, this head needs \[64, 64\]"),
    ],
)
def test_initial_head_of_another_shape(
    make_options: MakeOptions, trained: TrainedHead, shape: MedusaShape, message: str
) -> None:
    with pytest.raises(TrainingOptionError, match=message):
        train(make_options(shape=shape, initial=trained("medusa").folder, **TEXT_ONLY))


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (64, r"config.json has emb_dim = 64, but by proj.0.weight it is 96"),
        (96, r"proj.0.weight is \[32, 96\], this head needs \[32, 64\]"),
    ],
)
def test_evaluation_refuses_a_head_for_another_size(
    trained: TrainedHead, target_folder: Path, prompts_file: Path, size: int, message: str
) -> None:
    folder = trained("mlp").folder
    tensors, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    other = prompts_file.with_name(f"head{size}")
    other.mkdir()
    tensors["speculator.proj.0.weight"] = torch.zeros(32, 96)
    save_file(tensors, other / "model.safetensors")
    (other / "config.json").write_text(json.dumps(config | {"emb_dim": size}))
    with pytest.raises(DataError, match=message):
        evaluate_draft(str(target_folder), other, prompts_file, device="cpu")


def test_loss_that_is_no_number(make_options: MakeOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    from pilotfish.exporter.training import losses

    def nothing(log_p: torch.Tensor, log_q: torch.Tensor) -> losses.Divergence:
        values, gradient = losses.forward_kl(log_p, log_q)
        return losses.Divergence(values * torch.nan, gradient)

    monkeypatch.setitem(losses.DIVERGENCES, "reverse-kl", nothing)
    with pytest.raises(DivergedError, match="the loss is nan at step 1 of the text stage"):
        train(make_options(shape=MedusaShape(), loss="reverse-kl", **TEXT_ONLY))


def test_runs_share_what_the_target_wrote(make_options: MakeOptions, tmp_path: Path) -> None:
    stages = {"text": Stage(48, 0, 1e-3, 0), "self_text": Stage(48, 3, 1e-3, 1)}
    first = train(make_options(shape=HEADS["eagle3"], out=tmp_path / "eagle", **stages))
    second = train(make_options(shape=HEADS["medusa"], out=tmp_path / "medusa", written=first.folder, **stages))
    assert second.record.self_written_tokens == first.record.self_written_tokens
    assert "writing by the target" not in second.record.seconds
    assert not (second.folder / "training" / "self_text_shards").exists()
    with pytest.raises(DataError, match="no run there has text"):
        train(make_options(shape=HEADS["mlp"], out=tmp_path / "mlp", written=tmp_path / "nothing", **stages))


@pytest.mark.parametrize(("weight_format", "size"), [("int8", 0.7), ("int4_asym", 0.5)])
def test_packed_head_is_the_same_export(
    trained: TrainedHead, target_folder: Path, tmp_path: Path, weight_format: str, size: float
) -> None:
    script = Path(__file__).parents[3] / "samples" / "pack_head.py"
    folder = trained("eagle3").folder
    command = [sys.executable, script, folder, tmp_path / "packed", weight_format]
    subprocess.run(command, check=True, capture_output=True)
    options = ExportOptions(
        target=FormatChoice("f32", "f32", "f32"), head_format=weight_format, cache_dtype="f32", parity=False
    )
    for name, head in (("whole", folder), ("small", tmp_path / "packed")):
        export(str(target_folder), tmp_path / name, head=str(head), options=options)
    assert (tmp_path / "whole" / "head.bin").read_bytes() == (tmp_path / "small" / "head.bin").read_bytes()
    sizes = [(path / "model.safetensors").stat().st_size for path in (folder, tmp_path / "packed")]
    assert sizes[1] < size * sizes[0]


def test_offsets_that_do_not_fit_their_scales(trained: TrainedHead, tmp_path: Path) -> None:
    folder = trained("eagle3").folder
    tensors = load_file(folder / "model.safetensors")
    packed = {"fc.weight": torch.zeros(64, 96, dtype=torch.uint8), "fc.weight_scale": torch.ones(64, 6)}
    save_file({**tensors, **packed, "fc.weight_offset": torch.ones(64, 3)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"fc.weight_offset is \[64, 3\], its scale \[64, 6\]"):
        open_head(str(tmp_path))


def test_scales_that_do_not_divide(trained: TrainedHead, tmp_path: Path) -> None:
    folder = trained("eagle3").folder
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "fc.weight_scale": torch.ones(64, 5)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"fc.weight_scale is \[64, 5\], which does not divide \[64, 192\]"):
        open_head(str(tmp_path))
