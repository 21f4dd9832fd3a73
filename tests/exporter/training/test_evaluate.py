"""Replayed rounds against drafting for real, and prompts files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from pilotfish.exporter.training.conversation import chat_frame
from pilotfish.exporter.training.errors import DataError
from pilotfish.exporter.training.evaluate import CHAINS, Prompt, evaluate_draft, evaluate_prompts, read_prompts, replay
from pilotfish.exporter.training.students import load_student

if TYPE_CHECKING:
    from pilotfish.exporter.training import TrainResult
    from pilotfish.exporter.training.target import Target

NEW_TOKENS = 16


def best(model: Any, ids: list[int]) -> int:
    return int(model(input_ids=torch.tensor([ids])).logits[0, -1, :62].argmax())


def speculate(target: Any, draft: Any, prompt: list[int], chain: int, eos_ids: tuple[int, ...]) -> tuple[int, int, int]:
    """(accepted, rounds, tokens after the first) of greedy speculative decoding, one model call a token."""
    text = [*prompt, best(target, prompt)]
    accepted = rounds = 0
    room = len(prompt) + NEW_TOKENS
    while len(text) < room and text[-1] not in eos_ids:
        rounds += 1
        offer = list(text)
        for _ in range(chain):
            offer.append(best(draft, offer))
        for proposed in offer[len(text) :]:
            token = best(target, text)
            text.append(token)
            accepted += proposed == token
            if proposed != token or token in eos_ids or len(text) == room:
                break
        else:
            text.append(best(target, text))  # the pass that verified the chain also yields its next token
    return accepted, rounds, len(text) - len(prompt) - 1


@torch.no_grad()
@pytest.mark.parametrize("chain", [1, 3, 8])
def test_replay_equals_drafting_for_real(target: Target, finished: TrainResult, chain: int) -> None:
    draft = LlamaForCausalLM.from_pretrained(finished.folder, dtype=torch.float32)
    prompts = [Prompt("chat", f"w{number} w7 w9") for number in range(6)]
    scores = evaluate_prompts(target, load_student(finished.folder, target), prompts, NEW_TOKENS, lambda _: None)[-1]
    frame = chat_frame(target.tokenizer, "tiny")
    runs = [speculate(target.model, draft, frame.prompt_ids(item.text), chain, target.eos_ids) for item in prompts]
    accepted, rounds, tokens = (sum(column) for column in zip(*runs, strict=True))
    found = next(item for item in scores.chains if item.chain == chain)
    assert accepted > 0
    assert scores.num_tokens == tokens
    assert found.acceptance_length == pytest.approx(tokens / rounds)


def answer(agrees: str) -> list[list[int]]:
    """Places of an answer's tokens, hit or miss, in guesses that are the same at every depth."""
    return [[0 if each == "x" else 3] * 8 for each in agrees]


def test_replay_counts() -> None:
    answers = [answer("xxx-xx")]  # the first token is given
    pairs = replay(answers, 2)  # two hits and the target's own token, then two hits that end the answer
    assert (pairs.acceptance_rate, pairs.acceptance_length) == (1.0, 5 / 2)
    once = replay(answers, 1)  # hit, miss, hit
    assert (once.acceptance_rate, once.acceptance_length) == (2 / 3, 5 / 3)
    assert replay([answer("---")], 4).acceptance_length == 1.0
    assert replay([answer("x")], 4).acceptance_rate == 0.0  # nothing was drafted


def test_a_head_agrees_by_depth() -> None:
    places = [[0, 9], [0, 2], [9, 0], [9, 0], [0, 0]]  # one guess from near, one from further away
    pairs = replay([places], 2)  # hit near and far, then a token of the target's own, then the last one
    assert (pairs.acceptance_rate, pairs.acceptance_length) == (1.0, 4 / 2)
    assert replay([places], 1).acceptance_rate == 2 / 3


def test_perfect_draft_is_always_accepted() -> None:
    scores = replay([answer("x" * 28)], 8)
    assert (scores.acceptance_rate, scores.acceptance_length) == (1.0, 9.0)


def test_prompts_are_read(prompts_file: Path) -> None:
    prompts = read_prompts(prompts_file)
    assert len(prompts) == 6
    assert prompts[0] == Prompt("chat", "w1 w2 w0")


@pytest.mark.parametrize("line", ["not json", "[]", '{"prompt": "x"}', "3"])
def test_other_lines_are_refused_by_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"category": "a", "prompt": "b"}\n' + line)
    with pytest.raises(DataError, match=r"prompts.jsonl, line 2: not a JSON object"):
        read_prompts(path)


def test_empty_and_missing_prompts(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match="holds no prompt"):
        read_prompts(tmp_path / "empty.jsonl")
    with pytest.raises(DataError, match="cannot be read"):
        read_prompts(tmp_path / "missing.jsonl")


def test_finished_draft_is_evaluated_alike(finished: TrainResult, target_folder: Path, prompts_file: Path) -> None:
    scores = evaluate_draft(str(target_folder), finished.folder, prompts_file, new_tokens=24, device="cpu")
    recorded = {row.category: row for row in finished.record.prompts}
    for row in scores:
        assert row.num_tokens == recorded[row.category].num_tokens
        assert row.agreement == pytest.approx(recorded[row.category].agreement, abs=0.02)  # the file is f16
        assert [item.chain for item in row.chains] == list(CHAINS)


def test_draft_that_is_none(target_folder: Path, prompts_file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        evaluate_draft(str(target_folder), tmp_path, prompts_file)


def test_command_prints_one_json_line(
    finished: TrainResult, target_folder: Path, prompts_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pilotfish.exporter.training.__main__ import main

    flags = [
        "--target",
        str(target_folder),
        "--draft",
        str(finished.folder),
        "--prompts",
        str(prompts_file),
        "--tokens",
        "8",
    ]
    assert main(["evaluate", *flags]) == 0
    rows = json.loads(capsys.readouterr().out)["prompts"]
    assert [row["category"] for row in rows] == ["chat", "code", "all"]
    assert main(["evaluate", *flags[:-1], "8", "--draft", "nowhere"]) == 1
    assert "error: nowhere cannot be read: head nowhere is neither a folder nor" in capsys.readouterr().err


def test_refuses_a_draft_that_transformers_would_complete(
    finished: TrainResult, target_folder: Path, prompts_file: Path, tmp_path: Path
) -> None:
    """It makes up tensors that are missing, of any size that the configuration says."""
    folder = Path(shutil.copytree(finished.folder, tmp_path / "draft", ignore=shutil.ignore_patterns("training")))
    tensors = load_file(folder / "model.safetensors")
    missing = next(name for name in tensors if name.endswith("down_proj.weight"))
    save_file({name: tensor for name, tensor in tensors.items() if name != missing}, folder / "model.safetensors")
    with pytest.raises(DataError, match=rf"has no tensor {missing}; is the checkpoint complete"):
        evaluate_draft(str(target_folder), folder, prompts_file, device="cpu")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 8192, "num_attention_heads": 64}))
    with pytest.raises(DataError, match=r"by layers\.0\.self_attn\.q_proj\.weight it is 32"):
        evaluate_draft(str(target_folder), folder, prompts_file, device="cpu")
