"""Heads in training: their guesses against the papers' formulas, what they learn, and files that an export reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from reference import heads as reference
from safetensors.torch import load_file, save_file
from tiny_training import tiny_options

from pilotfish.exporter import ExportOptions, export
from pilotfish.exporter.bundle import read_manifest
from pilotfish.exporter.errors import CheckpointError
from pilotfish.exporter.heads import open_head
from pilotfish.exporter.options import FormatChoice
from pilotfish.exporter.training import (
    EagleShape,
    MedusaShape,
    SpeculatorShape,
    Stage,
    TimeLimitReached,
    TrainResult,
    evaluate_draft,
    train,
)
from pilotfish.exporter.training.errors import DataError, DivergedError, TrainingOptionError
from pilotfish.exporter.training.evaluate import Prompt, evaluate_prompts
from pilotfish.exporter.training.rows import Batch
from pilotfish.exporter.training.students import load_student

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiny_training import MakeOptions

    from pilotfish.exporter.training.target import Target

SHAPES = {
    "medusa": MedusaShape(num_heads=3, num_blocks=2),
    "mlp": SpeculatorShape(num_stages=3, inner_dim=32),
    "mlp-untied": SpeculatorShape(num_stages=2, inner_dim=64, tie_weights=False),
    "eagle": EagleShape(version=1, unroll=2, noise=0.05, regression=1.0, ffn_size=32),
    "eagle3": EagleShape(taps=(0, 1, 2), unroll=3, ffn_size=32, draft_vocab=40),
    "eagle3-all-ids": EagleShape(taps=(1, 0, 2), unroll=2, ffn_size=32, num_heads=2, num_kv_heads=1),
}
TEXT_ONLY = {"text": Stage(48, 12, 1e-2, 2), "self_text": Stage(48, 0, 1e-3, 0)}


@pytest.fixture(scope="module")
def trained(
    target_folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], TrainResult]:
    """One run of each kind, made when a test first asks for it."""
    done: dict[str, TrainResult] = {}

    def run(name: str) -> TrainResult:
        if name not in done:
            out = tmp_path_factory.mktemp("head") / name
            shape = SHAPES[name]
            done[name] = train(tiny_options(target=target_folder, data=text_file, out=out, shape=shape, **TEXT_ONLY))
        return done[name]

    return run


@pytest.mark.parametrize("name", SHAPES)
def test_loss_falls_and_acceptance_rises(trained: Callable[[str], TrainResult], name: str) -> None:
    steps = [point for point in trained(name).record.history if not point.held_out]
    assert steps[-1].loss < 0.95 * steps[0].loss
    assert steps[-1].sampled > steps[0].sampled
    stage = trained(name).record.stages[0]
    depth = {"medusa": 3, "mlp": 3, "mlp-untied": 2, "eagle": 2, "eagle3": 3, "eagle3-all-ids": 2}[name]
    assert all(value > 0 for value in stage.held_out.sampled_by_depth[:depth])
    assert not any(stage.held_out.sampled_by_depth[depth:])  # a head is never deeper than it was trained


def batch_of(rows: list[list[int]], positions: list[list[int]] | None = None) -> Batch:
    ids = torch.tensor(rows)
    return Batch(ids, None if positions is None else torch.tensor(positions), torch.ones_like(ids, dtype=torch.bool))


def logits_of(student: Any, target: Target, batch: Batch, depth: int) -> list[torch.Tensor]:
    """Of every depth [rows, length, ids]."""
    seen = target.look(batch.token_ids, batch.position_ids, student.taps)
    return [hidden @ head.T for hidden, head in student.eval().guess(batch, seen, target.head, depth)]


def stored(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    return tensors, json.loads((folder / "config.json").read_text())


IDS = [5, 9, 30, 7, 21, 44, 13, 8, 50, 11]


@torch.no_grad()
def test_medusa_is_the_papers(trained: Callable[[str], TrainResult], target: Target) -> None:
    folder = trained("medusa").folder
    tensors, config = stored(folder)
    found = logits_of(load_student(folder, target), target, batch_of([IDS]), 3)
    state = target.look(torch.tensor([IDS]), None).hidden[0]
    for head, logits in enumerate(found):
        expected = reference.medusa_logits(state, tensors, head, config["medusa_num_layers"], target.head)
        torch.testing.assert_close(logits[0], expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", ["mlp", "mlp-untied"])
def test_speculator_is_the_papers(trained: Callable[[str], TrainResult], target: Target, name: str) -> None:
    folder = trained(name).folder
    tensors, config = stored(folder)
    stages = config["n_predict"]
    found = logits_of(load_student(folder, target), target, batch_of([IDS]), stages)
    anchors = len(IDS) - stages
    tokens = torch.tensor([IDS[at + 1 : at + 1 + stages] for at in range(anchors)])  # the text's own
    state = target.look(torch.tensor([IDS]), None).hidden[0, :anchors]
    for logits, (_, expected) in zip(found, reference.mlp_stages(state, tokens, tensors, config), strict=True):
        torch.testing.assert_close(logits[0, :anchors], expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", ["eagle", "eagle3", "eagle3-all-ids"])
def test_unrolled_eagle_is_drafting_row_by_row(
    trained: Callable[[str], TrainResult], target: Target, name: str
) -> None:
    """A chain from every position: its cache holds true states up to there, then the head's own."""
    folder = trained(name).folder
    tensors, config = stored(folder)
    student = load_student(folder, target)
    depth = 4
    found = logits_of(student, target, batch_of([IDS]), depth)
    seen = target.look(torch.tensor([IDS]), None, student.taps)
    embedding = target.model.get_input_embeddings().weight
    if name == "eagle":
        states = seen.hidden[0]
        run = lambda tokens, state: reference.eagle(  # noqa: E731
            tokens, state, tensors, config, embedding=embedding, lm_head=target.head
        )
    else:
        tensors["embed_tokens.weight"] = embedding
        states = reference.eagle3_features([stream[0] for stream in seen.streams], tensors)
        run = lambda tokens, state: reference.eagle3(tokens, state, tensors, config)  # noqa: E731
    for start in range(len(IDS) - depth - 1):
        state = states[: start + 1]
        for step in range(depth):
            next_states, logits = run(torch.tensor(IDS[1 : start + step + 2]), state)
            torch.testing.assert_close(found[step][0, start], logits[-1], rtol=1e-3, atol=1e-3)
            state = torch.cat([state, next_states[-1:]])


@torch.no_grad()
@pytest.mark.parametrize("name", ["mlp", "eagle", "eagle3"])
def test_texts_in_one_row_do_not_see_each_other(
    trained: Callable[[str], TrainResult], target: Target, name: str
) -> None:
    student = load_student(trained(name).folder, target)
    first, second = IDS[:4], IDS[4:]
    together = logits_of(student, target, batch_of([IDS], [[0, 1, 2, 3, 0, 1, 2, 3, 4, 5]]), 2)
    alone = logits_of(student, target, batch_of([second]), 2)
    for found, expected in zip(together, alone, strict=True):
        inside = len(second) - 2  # positions whose tokens ahead are in the text
        torch.testing.assert_close(found[0, 4 : 4 + inside], expected[0, :inside], rtol=1e-4, atol=1e-4)
    scored = student.usable(batch_of([IDS], [[0, 1, 2, 3, 0, 1, 2, 3, 4, 5]])).scored[0].tolist()
    assert [at for at, used in enumerate(scored) if not used] == [0, len(first)]  # no state before a text's first token


@pytest.mark.parametrize("name", SHAPES)
def test_export_reads_what_training_wrote(
    trained: Callable[[str], TrainResult], target_folder: Path, tmp_path: Path, name: str
) -> None:
    folder = trained(name).folder
    checkpoint = open_head(str(folder))
    formats = FormatChoice("f32", "f32", "f32")
    options = ExportOptions(target=formats, head_format="f16", cache_dtype="f32", parity=False)
    export(str(target_folder), tmp_path / "bundle", head=str(folder), options=options)
    entry = read_manifest(tmp_path / "bundle").head
    assert entry.kind == checkpoint.kind
    assert entry.parameters == trained(name).record.trained_parameters
    assert (folder / "README.md").read_text().count(f"pilotfish train {name.partition('-')[0].rstrip('3')}") == 1
    assert (folder / "curves.png").stat().st_size > 1000


def test_draft_vocabulary_is_the_texts_most_frequent(trained: Callable[[str], TrainResult], target: Target) -> None:
    tensors = load_file(trained("eagle3").folder / "model.safetensors")
    ids = (tensors["d2t"] + torch.arange(40)).tolist()
    assert ids == sorted(set(ids)) == torch.nonzero(tensors["t2d"]).flatten().tolist()
    assert set(target.eos_ids) <= set(ids)
    assert len([token for token in ids if token >= 5]) >= 38  # words of the text before special tokens it lacks


@pytest.mark.parametrize("name", ["medusa", "mlp", "eagle", "eagle3"])
def test_replay_equals_drafting_for_real(trained: Callable[[str], TrainResult], target: Target, name: str) -> None:
    """One token at a time through the head's guesses of the text so far, against the replay of the whole answer."""
    student, chain = load_student(trained(name).folder, target), 2
    prompts = [Prompt("chat", f"w{number} w7 w9") for number in range(4)]
    scores = evaluate_prompts(target, student, prompts, 12, lambda _: None)[-1]
    from pilotfish.exporter.training.conversation import chat_frame

    rounds = tokens = 0
    for prompt in prompts:
        text = chat_frame(target.tokenizer, "tiny").prompt_ids(prompt.text)
        room, start = len(text) + 12, len(text)
        text.append(best(target, text))
        while len(text) < room and text[-1] not in target.eos_ids:
            rounds += 1
            offer = draft_chain(student, target, text, chain)
            for proposed in [*offer, None]:
                text.append(best(target, text))
                if proposed != text[-1] or text[-1] in target.eos_ids or len(text) == room:
                    break
        tokens += len(text) - start - 1
    found = next(item for item in scores.chains if item.chain == chain)
    assert found.acceptance_length == pytest.approx(tokens / rounds)


@torch.no_grad()
def best(target: Target, ids: list[int]) -> int:
    return int(target.model(input_ids=torch.tensor([ids])).logits[0, -1, : target.vocab_size].argmax())


@torch.no_grad()
def draft_chain(student: Any, target: Target, text: list[int], chain: int) -> list[int]:
    """Guess d about the token after text + chain so far stands at the position before the text's last token."""
    offer: list[int] = []
    for depth in range(chain):
        whole = [*text, *offer]
        logits = logits_of(student, target, batch_of([[*whole, 0]]), depth + 1)[depth][0, len(text) - 2]
        row = int(logits.argmax())
        offer.append(row if student.ids is None else int(student.ids[row]))
    return offer


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


def test_initial_head_is_where_training_starts(
    make_options: MakeOptions, trained: Callable[[str], TrainResult]
) -> None:
    before = trained("eagle3")
    options = make_options(shape=SHAPES["eagle3"], initial=before.folder, **TEXT_ONLY)
    first, untrained = train(options).record.history[0], before.record.history[0]
    assert first.loss < 0.97 * untrained.loss


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (MedusaShape(num_heads=2, num_blocks=2), "no place for, such as 2.0.linear.bias"),
        (MedusaShape(num_heads=3, num_blocks=3), r"tensor 0.2.linear.weight is missing, this head needs \[64, 64\]"),
    ],
)
def test_initial_head_of_another_shape(
    make_options: MakeOptions, trained: Callable[[str], TrainResult], shape: MedusaShape, message: str
) -> None:
    with pytest.raises(TrainingOptionError, match=message):
        train(make_options(shape=shape, initial=trained("medusa").folder, **TEXT_ONLY))


def test_evaluation_refuses_a_head_for_another_size(
    trained: Callable[[str], TrainResult], target_folder: Path, prompts_file: Path, tmp_path: Path
) -> None:
    tensors, config = stored(trained("mlp").folder)
    (tmp_path / "other").mkdir()
    tensors["speculator.proj.0.weight"] = torch.zeros(32, 96)
    save_file(tensors, tmp_path / "other" / "model.safetensors")
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=r"proj.0.weight is \[32, 96\], this head needs \[32, 64\]"):
        evaluate_draft(str(target_folder), tmp_path / "other", prompts_file, device="cpu")


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
    first = train(make_options(shape=SHAPES["eagle3"], out=tmp_path / "eagle", **stages))
    second = train(make_options(shape=SHAPES["medusa"], out=tmp_path / "medusa", written=first.folder, **stages))
    assert second.record.self_written_tokens == first.record.self_written_tokens
    assert "writing by the target" not in second.record.seconds
    assert not (second.folder / "training" / "self_text_shards").exists()
    with pytest.raises(DataError, match="no run there has text"):
        train(make_options(shape=SHAPES["mlp"], out=tmp_path / "mlp", written=tmp_path / "nothing", **stages))


def test_packed_head_is_the_8_bit_export(
    trained: Callable[[str], TrainResult], target_folder: Path, tmp_path: Path
) -> None:
    script = Path(__file__).parents[3] / "samples" / "pack_head.py"
    folder = trained("eagle3").folder
    subprocess.run([sys.executable, script, folder, tmp_path / "packed"], check=True, capture_output=True)
    options = ExportOptions(target=FormatChoice("f32", "f32", "f32"), cache_dtype="f32", parity=False)
    for name, head in (("whole", folder), ("small", tmp_path / "packed")):
        export(str(target_folder), tmp_path / name, head=str(head), options=options)
    assert (tmp_path / "whole" / "head.bin").read_bytes() == (tmp_path / "small" / "head.bin").read_bytes()
    sizes = [(path / "model.safetensors").stat().st_size for path in (folder, tmp_path / "packed")]
    assert sizes[1] < 0.7 * sizes[0]


def test_scales_that_do_not_divide(trained: Callable[[str], TrainResult], tmp_path: Path) -> None:
    tensors, config = stored(trained("eagle3").folder)
    tensors["fc.weight_scale"] = torch.ones(64, 5)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"fc.weight_scale is \[64, 5\], which does not divide \[64, 192\]"):
        open_head(str(tmp_path))
