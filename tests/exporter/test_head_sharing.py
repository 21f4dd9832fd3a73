"""What a head has in common with its target is stored once; its output layer may be trimmed to some ids."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tiny_heads
import torch
from head_runs import assert_close, run, run_steps, tap
from head_target import F32, IDS, HeadTarget, export_onto
from reference import heads as reference
from tiny_mtp import add_mtp

from pilotfish.exporter import ExportOptions, check_bundle, export
from pilotfish.exporter.errors import BundleCorruptError, OptionError, UnsupportedModelError

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_heads import Tensors

NUM_SCORED = 40


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> HeadTarget:
    torch.set_num_threads(1)
    return HeadTarget(tmp_path_factory.mktemp("sharing"), "llama")


def eagle_of(target: HeadTarget, *, copies: bool) -> tuple[Tensors, dict[str, object]]:
    """A head that comes with an embedding: the target's, or another."""
    tensors, config = tiny_heads.eagle()
    if copies:
        tensors["embed_tokens.weight"] = target.embedding.clone()
    return tensors, config


def test_matrices_of_the_target_are_not_stored_again(target: HeadTarget, tmp_path: Path) -> None:
    heads = {
        "medusa": (tiny_heads.medusa(shared_output=True), {"lm_head": "lm_head"}),
        "copy": (eagle_of(target, copies=True), {"embedding": "embedding", "lm_head": "lm_head"}),
        "own": (eagle_of(target, copies=False), {"lm_head": "lm_head"}),
    }
    for name, (parts, shared) in heads.items():
        head = export_onto(target, tiny_heads.save_head(tmp_path / f"{name}_head", *parts), tmp_path / name)
        assert head.shared == shared, name
        assert not {tensor.name for tensor in head.tensors} & shared.keys()
        assert head.weights.bytes == (tmp_path / name / "head.bin").stat().st_size
    own, copied = (check.stat().st_size for check in (tmp_path / "own" / "head.bin", tmp_path / "copy" / "head.bin"))
    assert own - copied >= target.embedding.numel() * 4


def test_a_shared_embedding_computes_the_same(target: HeadTarget, tmp_path: Path) -> None:
    tensors, config = eagle_of(target, copies=True)
    head = export_onto(target, tiny_heads.save_head(tmp_path / "head", tensors, config), tmp_path / "out")
    features = run(tmp_path / "out", "features", tap(target, head))["features"]
    tokens = torch.tensor([*IDS[1:], 42])
    _, logits = reference.eagle(
        tokens, target.state, tensors, config, embedding=target.embedding, lm_head=target.lm_head
    )
    assert_close(run_steps(tmp_path / "out", head, features)["logits"], logits)


def test_another_format_is_stored_for_an_output_layer_only(target: HeadTarget, tmp_path: Path) -> None:
    head = tiny_heads.save_head(tmp_path / "head", *eagle_of(target, copies=True))
    low = export_onto(target, head, tmp_path / "out", replace(F32, head_format="int8"))
    assert low.shared == {"embedding": "embedding"}
    assert "lm_head" in {tensor.name for tensor in low.tensors}


def test_rotary_tables_that_are_equal_are_shared(tmp_path: Path) -> None:
    target = HeadTarget(tmp_path, "llama")
    add_mtp(target.folder, "mimo")
    head = export_onto(target, target.folder, tmp_path / "out")
    assert {"embedding", "lm_head", "cos", "sin"} <= head.shared.keys()


@pytest.mark.parametrize("kind", ["medusa", "mlp_speculator", "eagle"])
@pytest.mark.parametrize("by_text", [True, False])
def test_a_trimmed_output_layer_scores_some_of_the_ids(
    target: HeadTarget, tmp_path: Path, kind: str, *, by_text: bool
) -> None:
    folder = tiny_heads.save_head(tmp_path / "head", *getattr(tiny_heads, kind)())
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog, 0123456789\n" * 3, encoding="utf-8")
    options = replace(F32, head_vocab=NUM_SCORED, draft_vocab_text=text if by_text else None)
    whole, trimmed = (
        export_onto(target, folder, tmp_path / "whole"),
        export_onto(target, folder, tmp_path / "o", options),
    )
    assert (whole.num_logits, trimmed.num_logits) == (258, NUM_SCORED)
    assert (trimmed.logit_ids is not None) == by_text
    kept = list(trimmed.logit_ids or range(NUM_SCORED))
    role = "stage.0" if kind == "mlp_speculator" else "heads"
    if kind == "eagle":
        features = run(tmp_path / "whole", "features", tap(target, whole))["features"]
        expected, found = (
            run_steps(tmp_path / name, head, features) for name, head in (("whole", whole), ("o", trimmed))
        )
        np.testing.assert_array_equal(found["logits"], expected["logits"][:, kept])
        return
    ids = {"input_ids": np.array(IDS, np.int32)} if kind == "mlp_speculator" else {}
    expected, found = (run(tmp_path / name, role, tap(target, whole) | ids) for name in ("whole", "o"))
    for name in (name for name in expected if name.startswith("logits")):
        np.testing.assert_array_equal(found[name], expected[name][:, kept])


@pytest.mark.parametrize("kind", ["medusa", "eagle"])
def test_a_bundle_with_a_trimmed_head_is_checked_against_torch(target: HeadTarget, tmp_path: Path, kind: str) -> None:
    head = tiny_heads.save_head(tmp_path / "head", *getattr(tiny_heads, kind)())
    options = replace(F32, parity=True, head_vocab=NUM_SCORED)
    result = export(str(target.folder), tmp_path / "out", head=str(head), options=options)
    assert result.head.parity.original_max_difference < 1e-4
    assert (result.head.num_logits, result.head.vocab_size) == (NUM_SCORED, 258)
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["head"]["shared"] = {"lm_head": "nothing"}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(BundleCorruptError, match="takes the head's lm_head from the target's nothing"):
        check_bundle(tmp_path / "out")


def test_vocabularies_that_are_refused(target: HeadTarget, tmp_path: Path) -> None:
    own_choice = tiny_heads.save_head(tmp_path / "eagle3", *tiny_heads.eagle3())
    with pytest.raises(UnsupportedModelError, match="scores 51 ids of its own choice; head_vocab cannot change them"):
        export_onto(target, own_choice, tmp_path / "a", replace(F32, head_vocab=NUM_SCORED))
    head = tiny_heads.save_head(tmp_path / "head", *tiny_heads.medusa())
    with pytest.raises(OptionError, match="head_vocab is 259; target has only 258 ids"):
        export_onto(target, head, tmp_path / "b", replace(F32, head_vocab=259))
    with pytest.raises(OptionError, match="head_vocab is 0"):
        replace(F32, head_vocab=0)
    (text := tmp_path / "text").write_text("some text", encoding="utf-8")
    of_text = replace(F32, draft_vocab_text=text)
    with pytest.raises(UnsupportedModelError, match="own choice; draft_vocab_text cannot change them"):
        export_onto(target, own_choice, tmp_path / "c", of_text)
    with pytest.raises(OptionError, match="but no draft or head is exported"):
        ExportOptions(draft_vocab_text=text).check_parts(has_draft=False, has_head=False)
