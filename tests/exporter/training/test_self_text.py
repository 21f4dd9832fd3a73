"""What the target writes, and how conversations share a row."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pilotfish.exporter.training import SelfText
from pilotfish.exporter.training.conversation import (
    BEGINNINGS,
    REQUESTS,
    ChatFrame,
    Excerpts,
    chat_frame,
    excerpt_turns,
)
from pilotfish.exporter.training.errors import TrainingOptionError
from pilotfish.exporter.training.generate import choose_tokens, continue_all, of_similar_width
from pilotfish.exporter.training.rows import Row, TokenRows, write_rows
from pilotfish.exporter.training.self_text import (
    Conversation,
    beginnings,
    fill_rows,
    pack_conversations,
    quotes_text,
    read_shard,
    save_shard,
    shard_path,
    write_shards,
)
from pilotfish.exporter.training.target import load_target
from pilotfish.exporter.training.workspace import TimeLimit

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.training.target import Target

OPTIONS = SelfText(tokens=300, batch=8, prompt_tokens=30, answer_tokens=12)


@pytest.fixture
def excerpts(tmp_path: Path) -> Excerpts:
    rng = np.random.default_rng(0)
    rows = write_rows(tmp_path / "text", (Row(rng.integers(5, 62, 40)) for _ in range(20)), 40, 62, "mark")
    return Excerpts(rows, np.arange(10))


def write(target: Target, excerpts: Excerpts, folder: Path) -> None:
    write_shards(
        target, OPTIONS, excerpts, seed=4, folder=folder, advance=lambda _units: None, time_limit=TimeLimit(None)
    )


def test_lost_shard_is_written_again_the_same(target: Target, excerpts: Excerpts, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    write(target, excerpts, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(before) > 1
    shard_path(folder, 1).unlink()
    write(target, excerpts, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_given_turns_are_answered_first_and_once(target: Target, excerpts: Excerpts, tmp_path: Path) -> None:
    given = [f"{first} {second}" for first in target.backend.get_vocab() for second in ("w5", "w9", "w11")]
    long = " ".join(["w7"] * OPTIONS.prompt_tokens)
    options = dataclasses.replace(OPTIONS, tokens=3000)
    write_shards(
        target,
        options,
        excerpts,
        given=[*given, long],
        seed=4,
        folder=tmp_path,
        advance=lambda _units: None,
        time_limit=TimeLimit(None),
    )
    frame = chat_frame(target.tokenizer, "tiny")
    shards = -(-(len(given) + 1) // options.batch)
    written = [item for index in range(shards) for item in read_shard(shard_path(tmp_path, index))]
    found = sorted(item.tokens[: item.prompt_tokens].tolist() for item in written)
    assert found == sorted(frame.all_prompt_ids(given))
    assert shard_path(tmp_path, shards).is_file()  # and turns of its own after them


def test_conversations_follow_the_template(target: Target, excerpts: Excerpts, tmp_path: Path) -> None:
    write(target, excerpts, tmp_path / "shards")
    conversations = [item for path in sorted((tmp_path / "shards").iterdir()) for item in read_shard(path)]
    assert sum(len(item.tokens) - item.prompt_tokens for item in conversations) >= OPTIONS.tokens
    start, stop = target.backend.token_to_id("<s>"), target.backend.token_to_id("<e>")
    user, assistant = target.backend.token_to_id("user"), target.backend.token_to_id("assistant")
    for item in conversations:
        prompt, answer = item.tokens[: item.prompt_tokens].tolist(), item.tokens[item.prompt_tokens :].tolist()
        assert prompt[:2] == [start, user]
        assert prompt[-3:] == [stop, start, assistant]
        assert 1 <= len(answer) <= OPTIONS.answer_tokens
        assert stop not in answer[:-1]


def test_greedy_rows_are_the_models_argmax(target: Target) -> None:
    prompt = [1, 3, 10, 11, 2, 1, 4]
    (answer,) = continue_all(target, [prompt], 8, [0.0], seed=0)
    ids = torch.tensor([prompt + answer])
    best = target.model(input_ids=ids).logits[0, len(prompt) - 1 : -1, : target.vocab_size].argmax(-1)
    assert best.tolist() == answer


def test_rows_do_not_depend_on_their_company(target: Target) -> None:
    """Padding, dropped rows and the order of rows change nothing in greedy text; some rows stop, some do not."""
    for name, weight in target.model.named_parameters():  # as it is, its text depends on the last token alone
        if "self_attn" in name:
            weight.data *= 12
    target = dataclasses.replace(target, eos_ids=(2, *range(5, 8)))
    rng = np.random.default_rng(0)
    prompts = [[1, 3, *rng.integers(5, 62, rng.integers(1, 20)).tolist(), 2, 1, 4] for _ in range(24)]
    together = continue_all(target, prompts, 70, [0.0] * len(prompts), seed=0)
    alone = [continue_all(target, [prompt], 70, [0.0], seed=0)[0] for prompt in prompts]
    assert together == alone
    assert len({len(answer) for answer in together}) > 5


def test_rows_are_grouped_by_width_and_come_back_in_their_order(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = np.random.default_rng(0).integers(300, 1400, 3000).tolist()
    groups = of_similar_width(widths)
    assert sorted(row for rows in groups for row in rows) == list(range(3000))
    read = sum(len(rows) * max(widths[row] for row in rows) for rows in groups)
    assert read < 1.15 * sum(widths)
    assert min(len(rows) for rows in groups[:-1]) >= 256
    prompts = [[1, 3, *range(5, 5 + row % 7 * 8), 2, 1, 4] for row in range(21)]
    together = continue_all(target, prompts, 6, [0.0] * 21, seed=0)
    monkeypatch.setattr("pilotfish.exporter.training.generate._LEAST_GROUP", 2)
    assert continue_all(target, prompts, 6, [0.0] * 21, seed=0) == together


@pytest.mark.gpu
def test_recorded_steps_write_what_a_cpu_writes(target_folder: Path) -> None:
    rng = np.random.default_rng(0)
    prompts = [[1, 3, *rng.integers(5, 62, rng.integers(1, 20)).tolist(), 2, 1, 4] for _ in range(24)]
    on_cpu, on_gpu = (
        continue_all(
            load_target(str(target_folder), None, torch.float32, torch.device(device)), prompts, 70, [0.0] * 24, seed=0
        )
        for device in ("cpu", "cuda")
    )
    assert on_gpu == on_cpu


def test_writing_leaves_the_attention_of_the_model_as_it_was(target: Target) -> None:
    before = target.model.config._attn_implementation
    continue_all(target, [[1, 3, 10]], 4, [1.0], seed=0)
    assert target.model.config._attn_implementation == before


def test_tokens_follow_the_softmax_at_their_rows_temperature() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -50.0]).repeat(40_000, 1)
    temperatures = torch.full((40_000,), 0.5)
    temperatures[:10] = 0
    sampled = temperatures.nonzero().ravel()
    tokens = choose_tokens(logits, temperatures, sampled, torch.Generator().manual_seed(0))
    assert tokens[:10].tolist() == [2] * 10
    found = torch.bincount(tokens[10:], minlength=4) / len(sampled)
    torch.testing.assert_close(found, (logits[0] / 0.5).softmax(0), rtol=0, atol=0.01)


def test_padding_of_the_vocabulary_is_never_written(target: Target) -> None:
    assert target.vocab_size < target.model.config.vocab_size
    written = continue_all(target, [[1, 3, 10]] * 64, 60, [30.0] * 64, seed=0)
    assert max(max(ids) for ids in written) < target.vocab_size


def test_half_of_the_own_turns_begin_with_a_word_of_the_text(tmp_path: Path) -> None:
    vocab = {word: index for index, word in enumerate(["<unk>", "gravity", "of", "x1234567", "compilers"])}
    backend = Tokenizer(models.WordLevel(vocab, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    frame = ChatFrame(PreTrainedTokenizerFast(tokenizer_object=backend), "", "")
    rows = write_rows(tmp_path / "rows", (Row(np.array([1, 2, 3, 4] * 20)) for _ in range(4)), 80, 5, "test")
    found = beginnings(frame, Excerpts(rows, np.arange(3)), 200, np.random.default_rng(0))
    assert sum(turn == "" for turn in found) == 50
    assert sum(turn in BEGINNINGS for turn in found) == 50
    assert {turn.split()[-1] for turn in found if turn and turn not in BEGINNINGS} == {"gravity", "compilers"}


def test_excerpts_fit_and_come_from_the_given_rows(target: Target, excerpts: Excerpts) -> None:
    frame = chat_frame(target.tokenizer, "tiny")
    turns = excerpt_turns(frame, excerpts, 200, 40, np.random.default_rng(0))
    assert max(len(frame.prompt_ids(turn)) for turn in turns) <= 40
    assert len({len(turn) for turn in turns}) > 10
    allowed = {target.backend.id_to_token(token) for token in excerpts.rows.tokens[:10].ravel().tolist()}
    asked = {word for request in REQUESTS for word in request.split()}
    assert {word for turn in turns for word in turn.split()} <= allowed | asked


def test_prompts_too_short_for_the_template(target: Target, excerpts: Excerpts) -> None:
    with pytest.raises(TrainingOptionError, match="prompt_tokens is 9; the template and a request take"):
        excerpt_turns(chat_frame(target.tokenizer, "tiny"), excerpts, 1, 9, np.random.default_rng(0))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_share_of_shards_that_quote(share: float) -> None:
    assert sum(quotes_text(index, share) for index in range(100)) == round(100 * share)


def test_conversations_like_an_evaluation_prompt_are_left_out(target: Target, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    items = [Conversation(rng.integers(5, 62, 40), 30) for _ in range(20)]
    (tmp_path / "shards").mkdir()
    save_shard(shard_path(tmp_path / "shards", 0), items)
    prompt = target.backend.decode(items[7].tokens[3:24].tolist())
    rows = pack_conversations(tmp_path / "shards", target, 80, [prompt], tmp_path / "rows")
    flat = rows.tokens.ravel().tolist()
    missing = [item for item in range(20) if items[item].tokens[0:10].tolist() not in _windows(flat, 10)]
    assert missing == [7]


def _windows(tokens: list[int], width: int) -> list[list[int]]:
    return [tokens[start : start + width] for start in range(len(tokens))]


def test_filled_rows_hold_everything_and_little_room() -> None:
    rng = np.random.default_rng(0)
    items = [Conversation(rng.integers(0, 9, size), 1) for size in rng.integers(5, 60, 500)]
    rows = list(fill_rows(iter(items), 64))
    assert sorted(id(item) for row in rows for item in row) == sorted(id(item) for item in items)
    assert max(sum(len(item.tokens) for item in row) for row in rows) <= 64
    used = sum(len(item.tokens) for item in items)
    assert used / (64 * len(rows)) > 0.9


def test_conversations_in_one_row_do_not_see_each_other(target: Target, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    items = [
        Conversation(np.array([1, 3, 10, 2, 1, 4, 20, 21, 2]), 6),
        Conversation(np.array([1, 3, 30, 2, 1, 4, 22]), 6),
    ]
    with shard_path(tmp_path / "shards", 0).open("wb") as file:
        np.savez(
            file,
            tokens=np.concatenate([item.tokens for item in items]),
            lengths=[len(item.tokens) for item in items],
            prompt_tokens=[item.prompt_tokens for item in items],
        )
    rows: TokenRows = pack_conversations(tmp_path / "shards", target, 20, [], tmp_path / "rows")
    assert len(rows) == 1
    batch = rows.batch(np.array([0]), torch.device("cpu"))
    assert batch.scored[0].nonzero().ravel().tolist() == [5, 6, 7, 9 + 5]  # each predicts a token of an answer
    target.model.train()  # as the draft is; there is no dropout
    packed = target.look(batch.token_ids, batch.position_ids).hidden[0]
    for start, item in zip((0, 9), items, strict=True):
        alone = target.look(torch.tensor(item.tokens)[None], None).hidden[0]
        torch.testing.assert_close(packed[start : start + len(item.tokens)], alone, rtol=1e-4, atol=1e-5)
