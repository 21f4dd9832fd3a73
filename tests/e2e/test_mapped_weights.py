"""A target larger than the memory budget on the CPU: weights in the mapped file change no bit of an answer."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pilotfish import Engine
from pilotfish.bindings import BudgetTooSmallError, BundleCorruptError, Model
from pilotfish.runtime.engine_options import memory_plan
from pilotfish.runtime.verify_sources import MAX_DRAFT_TOKENS, PLAIN, sources_of

if TYPE_CHECKING:
    from command_line import CommandLine

    from pilotfish.bindings import EngineInfo

MIB = 1 << 20
LIMITS: dict[str, Any] = {"max_context": 192, "prefill_chunk": 64, "max_draft_tokens": MAX_DRAFT_TOKENS}
OPENED: dict[str, Any] = {**LIMITS, "threads": 2, "calibration": "off"}


@pytest.fixture(scope="module")
def wide_bundle(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its target has some 22 MiB of weights: what this process takes changes by less; the draft is the tiny pair's."""
    import torch
    from tiny_bundles import byte_tokenizer, export_pair, save_checkpoint
    from transformers import LlamaConfig, LlamaForCausalLM

    root = tmp_path_factory.mktemp("mapped")
    target = save_checkpoint(root / "target", byte_tokenizer(), spread=0.5)  # for the tokenizer's files
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=256,
        intermediate_size=1536,
        num_hidden_layers=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=256,
        eos_token_id=257,
    )
    model = LlamaForCausalLM(config)
    model.lm_head.weight.data.normal_(std=0.5)
    model.save_pretrained(target)
    return export_pair(root / "bundle", target, checkpoints["draft"])


def whole_plan(bundle: Path) -> EngineInfo:
    return memory_plan(bundle, **LIMITS)


def budget_of(bundle: Path, share: float) -> int:
    """Bytes in which all but `share` of the target's weights have room in this process as it is."""
    whole = whole_plan(bundle)
    return whole.total_bytes - int(share * whole.target_weight_bytes)


def mapped_files(bundle: Path) -> list[str]:
    """Rights of this process's mappings of the target's weights."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if line.endswith(str(bundle / "target.bin"))]


@pytest.mark.parametrize("share", [0.25, 0.6])
def test_answers_are_the_resident_engines(wide_bundle: Path, share: float) -> None:
    sampled: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "seed": 3, "num_draft_tokens": 3}

    def answers(engine: Engine) -> tuple[list[list[int]], list[np.ndarray[Any, Any]]]:
        texts, logits = [], []
        for length in (1, 33, 120):
            ids = [int(value) for value in np.random.default_rng(length).integers(2, 256, length)]
            logits.append(engine.logits(ids, Model.TARGET))
            sources: list[dict[str, Any]] = [dict(source.options) for source in sources_of(engine)]
            for options in [dict(PLAIN), sampled, *sources]:
                result = engine.generate(ids, max_new_tokens=24, ignore_eos=True, **options)
                texts.append(list(result.token_ids))
        engine.check()
        return texts, logits

    with Engine(wide_bundle, **OPENED) as resident:
        assert resident.info.target_streamed_bytes == 0
        expected, expected_logits = answers(resident)
    budget = budget_of(wide_bundle, share)
    with Engine(wide_bundle, memory_budget=budget, **OPENED) as mapping:
        info = mapping.info
        assert info.target_streamed_bytes > 0
        assert info.total_bytes <= budget
        assert info.max_context == LIMITS["max_context"]
        if sys.platform == "linux":
            assert mapped_files(wide_bundle) == ["r--p"]
        found, logits = answers(mapping)
    if sys.platform == "linux":
        assert mapped_files(wide_bundle) == []
    assert found == expected
    for one, other in zip(logits, expected_logits, strict=True):
        np.testing.assert_array_equal(one, other)


def test_hashes_are_compared_as_the_options_say(wide_bundle: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(wide_bundle, tmp_path / "copy"))
    weights = bytearray((copy / "target.bin").read_bytes())
    weights[len(weights) // 2] ^= 1
    (copy / "target.bin").write_bytes(weights)
    with pytest.raises(BundleCorruptError, match=r"target\.bin: expected sha256"):
        Engine(copy, memory_budget=budget_of(copy, 0.6), **OPENED)
    # What failed gave memory back: this process takes less now.
    with Engine(copy, memory_budget=budget_of(copy, 0.6), verify_hashes="never", **OPENED) as engine:
        assert engine.info.target_streamed_bytes > 0
        assert len(engine.generate([5, 6], max_new_tokens=8, ignore_eos=True).token_ids) == 8


def test_what_does_not_fit_even_so_is_refused(wide_bundle: Path) -> None:
    budget = budget_of(wide_bundle, 1.5)
    with pytest.raises(BudgetTooSmallError, match=rf"(?s)memory_budget_bytes is {budget} .*streamed weights"):
        Engine(wide_bundle, memory_budget=budget, **OPENED)


def test_the_plan_shows_what_is_mapped(wide_bundle: Path, cli: CommandLine) -> None:
    budget = budget_of(wide_bundle, 0.5) // MIB
    shown = cli("plan", wide_bundle, "--max-context", LIMITS["max_context"], "--memory-budget", f"{budget}MiB")
    assert shown.exit_code == 0, shown.err
    assert re.search(r"mapped: [\d.]+ MiB of the target's weights stay in the bundle's file", shown.out + shown.err)
    whole = cli("plan", wide_bundle, "--max-context", LIMITS["max_context"])
    assert "mapped:" not in whole.out + whole.err
