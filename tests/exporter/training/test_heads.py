"""Heads in training: what they learn, their guesses against the papers' formulas, and files that an export reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from reference import heads as reference
from safetensors.torch import load_file
from tiny_training import HEADS

from pilotfish.exporter import ExportOptions, export
from pilotfish.exporter.bundle import read_manifest
from pilotfish.exporter.heads import open_head
from pilotfish.exporter.options import FormatChoice
from pilotfish.exporter.training.evaluate import Prompt, evaluate_prompts
from pilotfish.exporter.training.rows import Batch
from pilotfish.exporter.training.students import load_student

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_training import TrainedHead

    from pilotfish.exporter.training.target import Target


@pytest.mark.parametrize("name", HEADS)
def test_loss_falls_and_acceptance_rises(trained: TrainedHead, name: str) -> None:
    steps = [point for point in trained(name).record.history if not point.held_out]
    assert steps[-1].loss < 0.95 * steps[0].loss
    assert steps[-1].sampled > steps[0].sampled
    stage = trained(name).record.stages[0]
    depth = {
        "medusa": 3,
        "medusa-own-output": 2,
        "medusa-taps": 3,
        "mlp": 3,
        "mlp-untied": 2,
        "eagle": 2,
        "eagle3": 3,
        "eagle3-all-ids": 2,
    }[name]
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


def read_state(target: Target, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> torch.Tensor:
    """What heads without a decoder layer read."""
    seen = target.look(torch.tensor([IDS]), None, [0, 1])
    return reference.with_streams(seen.hidden[0], [stream[0] for stream in seen.streams], tensors, config)


@torch.no_grad()
@pytest.mark.parametrize("name", ["medusa", "medusa-own-output", "medusa-taps"])
def test_medusa_is_the_papers(trained: TrainedHead, target: Target, name: str) -> None:
    folder = trained(name).folder
    tensors, config = stored(folder)
    found = logits_of(load_student(folder, target), target, batch_of([IDS]), config["medusa_num_heads"])
    state = read_state(target, tensors, config)
    for head, logits in enumerate(found):
        expected = reference.medusa_logits(state, tensors, head, config["medusa_num_layers"], target.head)
        torch.testing.assert_close(logits[0], expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", ["mlp", "mlp-untied"])
def test_speculator_is_the_papers(trained: TrainedHead, target: Target, name: str) -> None:
    folder = trained(name).folder
    tensors, config = stored(folder)
    stages = config["n_predict"]
    found = logits_of(load_student(folder, target), target, batch_of([IDS]), stages)
    anchors = len(IDS) - stages
    tokens = torch.tensor([IDS[at + 1 : at + 1 + stages] for at in range(anchors)])  # the text's own
    state = read_state(target, tensors, config)[:anchors]
    for logits, (_, expected) in zip(found, reference.mlp_stages(state, tokens, tensors, config), strict=True):
        torch.testing.assert_close(logits[0, :anchors], expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", ["eagle", "eagle3", "eagle3-all-ids"])
def test_unrolled_eagle_is_drafting_row_by_row(trained: TrainedHead, target: Target, name: str) -> None:
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
@pytest.mark.parametrize("name", ["medusa-taps", "mlp-untied", "eagle3"])
def test_taps_are_scaled_in_training_and_not_on_disk(
    trained: TrainedHead, target: Target, tmp_path: Path, name: str
) -> None:
    student: Any = load_student(trained(name).folder, target)
    expected = logits_of(student, target, batch_of([IDS]), 2)
    student.scale_taps(torch.linspace(0.5, 40, len(student.taps) * target.hidden_size), fresh=False)
    student.save(tmp_path)
    for same in (student, load_student(tmp_path, target)):
        for found, logits in zip(logits_of(same, target, batch_of([IDS]), 2), expected, strict=True):
            torch.testing.assert_close(found, logits, rtol=1e-2, atol=1e-2)  # f16 on disk


@torch.no_grad()
def test_chains_begin_where_the_next_position_is_scored(trained: TrainedHead, target: Target) -> None:
    student: Any = load_student(trained("eagle3").folder, target)
    batch = batch_of([IDS, IDS[::-1]])
    scored = torch.zeros_like(batch.scored)
    scored[0, 4:7] = scored[1, 8] = True
    everywhere = logits_of(student, target, batch, 3)
    for found, full in zip(logits_of(student, target, batch._replace(scored=scored), 3), everywhere, strict=True):
        begins = torch.zeros_like(scored)
        begins[0, 3:6] = begins[1, 7] = True
        torch.testing.assert_close(found[begins], full[begins], rtol=1e-4, atol=1e-4)
        assert not found[~begins].any()


@torch.no_grad()
@pytest.mark.parametrize("name", ["mlp", "eagle", "eagle3"])
def test_texts_in_one_row_do_not_see_each_other(trained: TrainedHead, target: Target, name: str) -> None:
    student = load_student(trained(name).folder, target)
    first, second = IDS[:4], IDS[4:]
    together = logits_of(student, target, batch_of([IDS], [[0, 1, 2, 3, 0, 1, 2, 3, 4, 5]]), 2)
    alone = logits_of(student, target, batch_of([second]), 2)
    for found, expected in zip(together, alone, strict=True):
        inside = len(second) - 2  # positions whose tokens ahead are in the text
        torch.testing.assert_close(found[0, 4 : 4 + inside], expected[0, :inside], rtol=1e-4, atol=1e-4)
    scored = student.usable(batch_of([IDS], [[0, 1, 2, 3, 0, 1, 2, 3, 4, 5]])).scored[0].tolist()
    assert [at for at, used in enumerate(scored) if not used] == [0, len(first)]  # no state before a text's first token


@pytest.mark.parametrize("name", HEADS)
def test_export_reads_what_training_wrote(trained: TrainedHead, target_folder: Path, tmp_path: Path, name: str) -> None:
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


def test_draft_vocabulary_is_the_texts_most_frequent(trained: TrainedHead, target: Target) -> None:
    tensors = load_file(trained("eagle3").folder / "model.safetensors")
    ids = (tensors["d2t"] + torch.arange(40)).tolist()
    assert ids == sorted(set(ids)) == torch.nonzero(tensors["t2d"]).flatten().tolist()
    assert set(target.eos_ids) <= set(ids)
    assert len([token for token in ids if token >= 5]) >= 38  # words of the text before special tokens it lacks


@pytest.mark.parametrize("name", ["medusa", "mlp", "eagle", "eagle3"])
def test_replay_equals_drafting_for_real(trained: TrainedHead, target: Target, name: str) -> None:
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
