"""A draft whose logits are about the most frequent tokens of a text only: a map leads from rows to tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish import Engine
from pilotfish.bindings import Model

if TYPE_CHECKING:
    from pathlib import Path

NUM_IDS = 6  # of 12
PROMPTS = ("w1 w2", "w3", "w5 w9 w9", "w4 w0")


@pytest.fixture(scope="module")
def mapped(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that drafts for itself, scoring the tokens only that it likes to say."""
    from tiny_bundles import export_pair

    from pilotfish.exporter import ExportOptions, ModelFormats, export

    folder = tmp_path_factory.mktemp("mapped")
    plain = export_pair(folder / "plain", checkpoints["toy"], None, linear="f32", rest="f32")
    with Engine(plain, threads=1) as engine:
        said = [engine.generate(prompt, max_new_tokens=40, ignore_eos=True).text for prompt in PROMPTS]
    (folder / "text.txt").write_text("\n".join(said), encoding="utf-8")
    formats = ModelFormats("f32", "f32", "f32")
    options = ExportOptions(
        target=formats, draft=formats, parity=False, draft_vocab=NUM_IDS, draft_vocab_text=folder / "text.txt"
    )
    target = str(checkpoints["toy"])
    return export(target, folder / "bundle", draft=target, options=options).folder


def test_rows_are_about_the_mapped_tokens(mapped: Path) -> None:
    scored = json.loads((mapped / "manifest.json").read_text())["models"]["draft"]["logit_ids"]
    assert len(scored) == NUM_IDS
    assert scored != list(range(NUM_IDS))
    with Engine(mapped, threads=1) as engine:
        expected, found = (engine.logits([7, 1, 8], model) for model in (Model.TARGET, Model.DRAFT))
    np.testing.assert_array_equal(found[:, scored], expected[:, scored])
    others = np.setdiff1d(np.arange(found.shape[1]), scored)
    assert np.isneginf(found[:, others]).all()


@pytest.mark.parametrize("num_draft_tokens", [1, 4])
def test_greedy_output_is_plain_decodings(mapped: Path, num_draft_tokens: int) -> None:
    options = {"max_new_tokens": 40, "ignore_eos": True}
    accepted = drafted = 0
    with Engine(mapped, threads=1) as engine:
        for prompt in PROMPTS:
            plain = engine.generate(prompt, num_draft_tokens=0, **options)
            result = engine.generate(prompt, num_draft_tokens=num_draft_tokens, **options)
            assert result.token_ids == plain.token_ids
            accepted, drafted = accepted + result.stats.num_accepted, drafted + result.stats.num_drafted
    # The draft is the target: only tokens outside the map are missed. A wrong map would accept next to nothing.
    assert accepted > 0.5 * drafted


def test_sampling_accepts_with_the_mapped_probabilities(mapped: Path) -> None:
    accepted = drafted = 0
    with Engine(mapped, threads=1) as engine:
        for seed, prompt in enumerate(PROMPTS):
            stats = engine.generate(
                prompt, num_draft_tokens=3, max_new_tokens=60, temperature=0.8, seed=seed, ignore_eos=True
            ).stats
            accepted, drafted = accepted + stats.num_accepted, drafted + stats.num_drafted
    assert accepted > 0.3 * drafted


@pytest.mark.parametrize("kind", ["medusa", "mlp_speculator", "eagle"])
def test_a_head_that_scores_some_tokens_accepts_only_those(
    kind: str, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """Both heads are the same one but for the trimmed output layer; a wrong map would accept next to nothing."""
    import tiny_heads
    from fitted_heads import EXACT, KINDS, TorchTarget, fitted_head
    from head_bundles import agreeing_bundle
    from tiny_bundles import toy_tokenizer

    from pilotfish.exporter import export

    target = checkpoints["toy"]
    if kind in KINDS:
        head = tiny_heads.save_head(tmp_path / "head", *fitted_head(kind, TorchTarget(target)))
        export(str(target), tmp_path / "whole", head=str(head), options=EXACT)
    else:
        agreeing_bundle(tmp_path, kind, toy_tokenizer(10), EXACT)
        target, head = tmp_path / "target", tmp_path / "agreeing"
        (tmp_path / "bundle").rename(tmp_path / "whole")
    accepted = {}
    drafting = {
        "source": "head",
        "tree": "dynamic",
        "tree_nodes": 6,
        "tree_depth": 2,
        "max_new_tokens": 40,
        "ignore_eos": True,
        "explain": True,
    }
    with Engine(tmp_path / "whole", threads=1) as engine:
        said = [engine.generate(prompt, **drafting) for prompt in PROMPTS]
        accepted["whole"] = sum(result.stats.num_accepted for result in said)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(result.text for result in said), encoding="utf-8")
    options = replace(EXACT, head_vocab=NUM_IDS, draft_vocab_text=text)
    bundle = export(str(target), tmp_path / "trimmed", head=str(head), options=options).folder
    scored = json.loads((bundle / "manifest.json").read_text())["head"]["logit_ids"]
    assert scored != list(range(NUM_IDS))
    with Engine(bundle, threads=1) as engine:
        found = []
        for prompt, whole in zip(PROMPTS, said, strict=True):
            with engine.stream(prompt, **drafting) as stream:
                events = list(stream)
            assert tuple(event.token_id for event in events) == whole.token_ids
            found += [event.token_id for event in events if event.origin == "accepted"]
    assert set(found) <= set(scored)
    assert len(found) > 0.6 * accepted["whole"] > 0
