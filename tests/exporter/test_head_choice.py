"""Which format and ids a head gets: what is tried, what that promises, and what is said about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tiny_heads
from fitted_heads import TorchTarget, fitted_head
from head_bundles import agreeing_head
from safetensors.torch import load_file, save_file
from tiny_bundles import byte_tokenizer, save_checkpoint

from pilotfish import Engine
from pilotfish.bindings import UnsupportedError
from pilotfish.exporter import ExportOptions, check_bundle, draft_speed, draft_trials, export, head_maker
from pilotfish.exporter.draft_prompts import PROMPTS
from pilotfish.exporter.errors import OptionError, UnsupportedModelError
from pilotfish.runtime.manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import CommandLine

    from pilotfish.exporter.manifest import HeadEntry

QUICK = ExportOptions(parity=False)
POSITIONS = 512
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and an EAGLE-3 head that often agrees with it."""
    return agreeing_head(tmp_path_factory.mktemp("pair"), "eagle3", byte_tokenizer(), POSITIONS)


@pytest.fixture
def no_time_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a head with 64 columns they take all the time, so that no format is faster than another."""
    monkeypatch.setattr(draft_speed, "_NODE_BYTES", 0)


def choose(pair: tuple[Path, Path], out: Path, options: ExportOptions = QUICK) -> HeadEntry:
    head = export(str(pair[0]), out, head=str(pair[1]), options=options).manifest.head
    assert head is not None
    return head


def tokens_a_round(bundle: Path, chain: int) -> float:
    """Of the export's prompts, generated one after the other."""
    num_tokens = num_rounds = 0
    with Engine(bundle, threads=1, max_context=POSITIONS) as engine:
        for prompt in PROMPTS:
            ids = engine.encode_chat([{"role": "user", "content": prompt}])
            if len(ids) > POSITIONS - NEW_TOKENS:
                continue
            stats = engine.generate(ids, max_new_tokens=NEW_TOKENS, source="head", num_draft_tokens=chain).stats
            num_tokens += stats.num_new_tokens - 1
            num_rounds += stats.num_rounds
    return num_tokens / num_rounds


@pytest.mark.usefixtures("no_time_of_nodes")
def test_a_small_format_that_is_right_as_often_is_chosen_and_told(
    pair: tuple[Path, Path], tmp_path: Path, cli: CommandLine
) -> None:
    finished = cli("export", pair[0], "--head", pair[1], "--no-parity", "--out", tmp_path / "out")
    assert finished.exit_code == 0, finished.err
    assert "heads that were tried" in finished.out
    head = check_bundle(tmp_path / "out").head
    assert head is not None
    assert f"{head.format} (promises most tokens a second)" in finished.out
    assert head.format in ("int4", "int4_asym")
    assert [item.linear for item in head.trials][:2] == ["int8", "int4"]
    (chosen,) = (item for item in head.trials if item.is_chosen)
    assert chosen.speedup == max(item.speedup for item in head.trials)
    assert (chosen.linear, chosen.num_logits) == (head.format, head.num_logits)
    assert chosen.acceptance_length == pytest.approx(tokens_a_round(tmp_path / "out", chosen.chain))
    assert chosen.acceptance_length > 1
    kept = read_manifest(tmp_path / "out").head
    assert kept is not None
    assert kept.trials == head.trials
    assert "heads that its export tried" in " ".join(cli("info", tmp_path / "out").out.split())


def test_a_head_that_is_seldom_right_in_4_bits_keeps_8(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Two columns, one a block, are 64 times as large and are divided by 64 before."""
    tensors, config = load_file(pair[1] / "model.safetensors"), (pair[1] / "config.json").read_text(encoding="utf-8")
    for column in (3, 40):
        tensors["norm.weight"][column] /= 64
        tensors["lm_head.weight"][:, column] *= 64
    (tmp_path / "head").mkdir()
    save_file(tensors, tmp_path / "head" / "model.safetensors")
    (tmp_path / "head" / "config.json").write_text(config, encoding="utf-8")
    head = choose((pair[0], tmp_path / "head"), tmp_path / "out")
    assert head.format == "int8"
    kept, *smaller = head.trials
    assert kept.is_chosen
    assert smaller
    assert all(item.acceptance_length < kept.acceptance_length for item in smaller)
    assert all(item.step_cost < kept.step_cost for item in smaller)
    assert kept.acceptance_length == pytest.approx(tokens_a_round(tmp_path / "out", kept.chain))


def test_nothing_is_tried_where_the_format_is_pinned(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(head_maker, "open_bundle")
    head = choose(pair, tmp_path / "out", ExportOptions(parity=False, head_format="int8"))
    assert (head.format, head.trials) == ("int8", ())
    assert "trials" not in (tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_time_of_nodes")
def test_fewer_ids_are_tried_and_options_pin_what_they_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_speed, "_FEWEST_IDS", 64)
    target = save_checkpoint(tmp_path / "target", byte_tokenizer(), spread=2.0, max_positions=POSITIONS)
    head = tiny_heads.save_head(tmp_path / "head", *fitted_head("medusa", TorchTarget(target)))
    found = choose((target, head), tmp_path / "out", ExportOptions(parity=False, head_format="int8"))
    assert {item.linear for item in found.trials} == {"int8"}
    assert found.trials[0].num_logits == 258
    (chosen,) = (item for item in found.trials if item.is_chosen)
    assert found.num_logits == chosen.num_logits
    assert chosen.acceptance_length == pytest.approx(tokens_a_round(tmp_path / "out", chosen.chain))
    found = choose((target, head), tmp_path / "all", ExportOptions(parity=False, head_vocab=258))
    assert {item.num_logits for item in found.trials} == {258}


def test_ids_of_a_heads_own_choice_are_kept(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (text := tmp_path / "text").write_text("some text", encoding="utf-8")
    with pytest.raises(UnsupportedModelError, match="own choice; draft_vocab_text cannot change them"):
        choose(pair, tmp_path / "out", ExportOptions(parity=False, draft_vocab_text=text))
    assert not (tmp_path / "out").exists()


def test_where_a_head_cannot_be_tried_options_are_the_remedy(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise UnsupportedError("onnxruntime is not installed")

    monkeypatch.setattr(draft_trials, "Engine", refuse)
    with pytest.raises(OptionError, match=r"head cannot be tried here: onnxruntime is not installed; .* --head-format"):
        choose(pair, tmp_path / "out")
    assert not (tmp_path / "out").exists()
