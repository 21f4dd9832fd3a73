"""Which formats and ids a draft gets: what is tried, what that promises, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tiny_heads
from tiny_bundles import CHAT_TEMPLATE, byte_tokenizer, save_checkpoint
from tokenizers import Tokenizer

from pilotfish import Engine
from pilotfish.bindings import Model, UnsupportedError
from pilotfish.exporter import (
    ExportOptions,
    FormatChoice,
    check_bundle,
    draft_export,
    draft_speed,
    draft_trials,
    export,
)
from pilotfish.exporter.draft_prompts import PROMPTS
from pilotfish.exporter.draft_speed import trial, verify_cost, vocabulary_sizes
from pilotfish.exporter.draft_vocabulary import Ranking
from pilotfish.exporter.errors import OptionError
from pilotfish.exporter.parity_text import TEXT
from pilotfish.exporter.tokenizer import TokenizerInfo
from pilotfish.runtime.draft_evaluation import CHAINS
from pilotfish.runtime.manifest import DraftTrial, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

NAMES = ("int4", "int4", "int4")
QUICK = ExportOptions(parity=False)
ALL_PINNED = FormatChoice("int8", "int4", "int4")
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    target = save_checkpoint(folder / "target", byte_tokenizer(), spread=2.0, max_positions=512)
    return str(target), str(
        save_checkpoint(folder / "draft", byte_tokenizer(), spread=2.0, noise=0.1, max_positions=512)
    )


@pytest.fixture
def few_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_speed, "_FEWEST_IDS", 32)


def promised(step: float, agrees: list[np.ndarray]) -> DraftTrial:
    return trial(NAMES, 100, lambda chain: chain * step, dict.fromkeys(CHAINS, agrees))


def test_a_draft_that_is_always_right_promises_its_longest_chain() -> None:
    right = [np.ones(1 + 90, dtype=bool)]  # 10 rounds of 9 tokens after the first token
    found = promised(0.01, right)
    assert (found.chain, found.acceptance_length, found.agreement) == (8, 9.0, 1.0)
    assert found.speedup == pytest.approx(9 / (8 * 0.01 + verify_cost(9)))
    assert promised(0.9, right).chain < 8


def test_a_draft_that_is_never_right_promises_less_than_plain_decoding() -> None:
    wrong = promised(0.1, [np.zeros(20, dtype=bool)])
    assert (wrong.chain, wrong.acceptance_length, wrong.agreement) == (1, 1.0, 0.0)
    assert wrong.speedup == pytest.approx(1 / (0.1 + verify_cost(2)))


def test_a_pass_costs_what_measured_ones_do() -> None:
    assert [verify_cost(rows) for rows in (1, 4, 8)] == pytest.approx([1, 1.07, 1.51], abs=0.03)


def test_vocabularies_are_powers_of_two_below_all_ids() -> None:
    assert vocabulary_sizes(49152) == (8192, 16384, 32768)
    assert vocabulary_sizes(8192) == vocabulary_sizes(300) == ()


def test_ids_are_ranked_by_stop_ids_built_in_text_and_number() -> None:
    text = byte_tokenizer().to_str()
    info = TokenizerInfo(text, 258, 256, (257,), None, add_bos=False, chat_template="é")
    ids = Ranking.of(info, None).ids
    used = set(Tokenizer.from_str(text).encode(f"{TEXT}é").ids)
    assert ids[0] == 257
    assert set(ids[1 : 1 + len(used)]) == used
    assert list(ids[1 + len(used) :]) == sorted(set(range(257)) - used)
    assert Ranking.of(info, None).first(10).coverage is None


@pytest.mark.usefixtures("few_ids")
def test_the_fastest_of_what_was_tried_is_written(pair: tuple[str, str], tmp_path: Path) -> None:
    result = export(pair[0], tmp_path / "out", draft=pair[1], options=ExportOptions(parity_tokens=16))
    draft = check_bundle(tmp_path / "out").models["draft"]
    tried = draft.trials
    assert [item.num_logits for item in tried[:5]] == [32, 64, 128, 256, 258]
    assert [item.linear for item in tried] == ["int8"] * 5 + ["int4"]
    assert [item.step_cost for item in tried[:5]] == sorted(item.step_cost for item in tried[:5])
    (chosen,) = (item for item in tried if item.is_chosen)
    assert chosen.speedup >= 0.98 * max(item.speedup for item in tried)
    assert draft.num_logits == chosen.num_logits
    assert draft.formats.linear == chosen.linear
    assert result.models[1].parity is not None  # of what was chosen
    assert read_manifest(tmp_path / "out").models[1].trials == tried
    with Engine(tmp_path / "out", threads=1, max_context=512) as engine:
        right, total = guessed(engine)
    assert chosen.agreement == pytest.approx(right / total)
    assert chosen.agreement > 0.1


def guessed(engine: Engine) -> tuple[int, int]:
    """How many tokens of plain answers the draft guesses, answer by answer, and of how many."""
    right = total = 0
    for prompt in PROMPTS:
        ids = engine.encode_chat([{"role": "user", "content": prompt}])
        if len(ids) > engine.info.max_context - NEW_TOKENS:
            continue
        said = engine.generate(ids, max_new_tokens=NEW_TOKENS, num_draft_tokens=0).token_ids
        likeliest = engine.logits([*ids, *said], Model.DRAFT).argmax(axis=1)[len(ids) - 1 : -1]
        right += int((likeliest == said)[1:].sum())
        total += len(said) - 1
    return right, total


@pytest.mark.usefixtures("few_ids")
def test_options_pin_what_they_name(pair: tuple[str, str], tmp_path: Path, cli: CommandLine) -> None:
    options = replace(QUICK, draft=FormatChoice(linear="f16"), draft_vocab=40)
    tried = export(pair[0], tmp_path / "out", draft=pair[1], options=options).manifest.models["draft"].trials
    assert {item.num_logits for item in tried} == {40}
    assert {item.linear for item in tried} == {"f16"}
    (prompts := tmp_path / "prompts").write_text('{"prompt": "a", "category": "chat"}', encoding="utf-8")
    short = ("--new-tokens", "4", "--pass-repeats", "1", "--max-context", "64")
    finished = cli("evaluate-draft", tmp_path / "out", "--prompts", prompts, *short)
    assert finished.exit_code == 0, finished.err
    assert "drafts that its export tried" in " ".join(finished.out.split())
    (text := tmp_path / "text").write_text("zebra " * 9, encoding="utf-8")
    options = replace(QUICK, draft=ALL_PINNED, draft_vocab_text=text)
    result = export(pair[0], tmp_path / "text_out", draft=pair[1], options=options)
    assert len(result.manifest.models["draft"].trials) == 5  # formats are pinned, the number of ids is not
    if result.models[1].num_logits < 258:
        assert result.models[1].logit_coverage == 1.0


def test_nothing_is_tried_where_everything_is_pinned(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(draft_export, "open_bundle")
    options = replace(QUICK, draft=ALL_PINNED, draft_vocab=40)
    draft = export(pair[0], tmp_path / "out", draft=pair[1], options=options).manifest.models["draft"]
    assert (draft.trials, draft.num_logits) == ((), 40)
    assert "trials" not in (tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")


def test_a_target_without_answers_and_a_template_that_refuses_are_said(tmp_path: Path) -> None:
    target = save_checkpoint(tmp_path / "target", byte_tokenizer(), spread=2.0, max_positions=64)  # holds no prompt
    template = CHAT_TEMPLATE + "{{ raise_exception('not for you') }}"
    (target / "chat_template.jinja").write_text(template, encoding="utf-8")
    with pytest.warns(UserWarning) as said:  # noqa: PT030 - the messages are compared below
        result = export(str(target), tmp_path / "out", draft=str(target), options=QUICK)
    messages = " ".join(str(warning.message) for warning in said)
    assert "drafts are tried without the chat template, which cannot be used" in messages
    assert "target was not tried: the target has no answer to the built-in prompts" in messages
    draft = result.manifest.models["draft"]
    assert (draft.formats.linear, draft.trials) == ("int8", ())


def test_a_draft_beside_a_head_is_tried_too(pair: tuple[str, str], tmp_path: Path) -> None:
    head = tiny_heads.save_head(tmp_path / "head", *tiny_heads.medusa())
    manifest = export(pair[0], tmp_path / "out", draft=pair[1], head=str(head), options=QUICK).manifest
    assert manifest.head is not None
    assert manifest.models["draft"].trials


def test_where_nothing_can_be_tried_options_are_the_remedy(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise UnsupportedError("onnxruntime is not installed")

    monkeypatch.setattr(draft_trials, "Engine", refuse)
    with pytest.raises(OptionError, match=r"cannot be tried here: onnxruntime is not installed; .* --draft-vocab"):
        export(pair[0], tmp_path / "out", draft=pair[1], options=QUICK)
    assert not (tmp_path / "out").exists()
