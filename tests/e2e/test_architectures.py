"""Every architecture of the table exports and is right: against transformers, and in every way to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, FULL, NODES, config_of
from support_matrix import PAGE, replaced
from tiny_models import save_random, save_tokenizer
from transformers import AutoModelForCausalLM

from pilotfish import Engine
from pilotfish.exporter import ExportOptions, ModelFormats, export
from pilotfish.exporter.load import load_checkpoint
from pilotfish.exporter.parity import graph_logits
from pilotfish.runtime.verify import self_draft_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

F32 = ModelFormats("f32", "f32", "f32")
NUM_TOKENS = 96
NEW_TOKENS = 12
TEXT = b"The quick brown fox jumps over the lazy dog, and 12 of its kind follow it into the deep woods; then it rests."
LENGTHS = (24, 100)  # of prompts: within every window, and beyond them
EVERY = [name if name in FULL else pytest.param(name, marks=pytest.mark.slow) for name in ARCHITECTURES]
INT4_KL = 0.05  # nats a token that activations of 8 bits may cost beside torch on the same integers


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Checkpoint and f32 bundle of an architecture, each made at its first use."""
    made: dict[str, tuple[Path, Path]] = {}

    def make(name: str) -> tuple[Path, Path]:
        if name not in made:
            folder = tmp_path_factory.mktemp("architecture")
            checkpoint = save_random(folder / "model", config_of(name), is_whole=name.endswith(", text"))
            save_tokenizer(checkpoint)
            options = ExportOptions(target=F32, cache_dtype="f32", parity=False)
            result = export(str(checkpoint), folder / "bundle", options=options)
            assert result.models[0].nodes_per_layer == NODES.get(name, 5)
            made[name] = checkpoint, result.folder
        return made[name]

    return make


def reference(checkpoint: Path) -> Any:
    """transformers' own model, on the way that knows all that a configuration says."""
    loaded = load_checkpoint(str(checkpoint))
    attention = "sdpa" if getattr(loaded.config, "alibi", False) else "eager"  # Falcon's own adds distances twice
    model = AutoModelForCausalLM.from_config(loaded.config, dtype=torch.float32, attn_implementation=attention)
    source = loaded.source(model)
    state = {
        name: torch.from_numpy(source.read(name)) if source.stored_name(name) else None for name in model.state_dict()
    }
    model.load_state_dict({name: value for name, value in state.items() if value is not None}, strict=False)
    model.tie_weights()
    return model.train(mode=False)


def logits_of(model: Any, ids: list[int]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        found: np.ndarray[Any, Any] = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    return found


def test_the_page_has_the_table() -> None:
    """After a change: python tests/support_matrix.py --write."""
    text = PAGE.read_text(encoding="utf-8")
    assert replaced(text) == text


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_those_of_transformers(name: str, bundles: Any) -> None:
    """The export has seen too that a row has the same bits in passes of any size."""
    checkpoint, bundle = bundles(name)
    ids = list(TEXT[:NUM_TOKENS])
    expected = logits_of(reference(checkpoint), ids)
    found = graph_logits(bundle / "target.onnx", ids, "f32")
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module", params=EVERY)
def full(request: pytest.FixtureRequest, bundles: Any) -> Iterator[tuple[Path, Path, Engine]]:
    checkpoint, bundle = bundles(request.param)
    with Engine(bundle, threads=1, num_sequences=3, calibration="off") as engine:
        yield checkpoint, bundle, engine


def greedy(engine: Engine, prompt: list[int], **options: Any) -> Any:
    return engine.generate(prompt, max_new_tokens=NEW_TOKENS, ignore_eos=True, reuse_prefix=False, **options)


def test_greedy_tokens_are_those_of_transformers(full: tuple[Path, Path, Engine]) -> None:
    """Each token is the likeliest that transformers has after the ones before it."""
    checkpoint, _, engine = full
    model = reference(checkpoint)
    for length in LENGTHS:
        ids = list(TEXT[:length])
        found = list(greedy(engine, ids, source="plain").token_ids)
        scores = logits_of(model, ids + found)[length - 1 : -1]
        assert scores.argmax(axis=1).tolist() == found, length


def test_chunks_of_a_prompt_change_nothing(full: tuple[Path, Path, Engine]) -> None:
    _, bundle, engine = full
    prompt = list(TEXT[: LENGTHS[1]])
    with Engine(bundle, threads=1, prefill_chunk=16, calibration="off") as chunked:
        found = greedy(chunked, prompt, source="plain", logprobs=1)
    whole = greedy(engine, prompt, source="plain", logprobs=1)
    assert (found.token_ids, found.logprobs) == (whole.token_ids, whole.logprobs)


def test_drafts_change_nothing(full: tuple[Path, Path, Engine], tmp_path: Path) -> None:
    """The target as its own draft: all of a chain is accepted, and a whole path of a tree."""
    _, bundle, engine = full
    prompt = list(TEXT[: LENGTHS[0]])
    plain = greedy(engine, prompt, source="plain")
    (tmp_path / "self").mkdir()
    with Engine(self_draft_bundle(bundle, tmp_path / "self"), threads=1, calibration="off") as drafting:
        chain = greedy(drafting, prompt, source="draft", num_draft_tokens=4)
        tree = greedy(drafting, prompt, source="draft", tree="dynamic", tree_nodes=6, tree_depth=2)
    assert chain.token_ids == tree.token_ids == plain.token_ids
    assert chain.stats.num_accepted == chain.stats.num_drafted > 0
    assert tree.stats.num_accepted > 0


def test_a_batch_changes_nothing(full: tuple[Path, Path, Engine]) -> None:
    _, _, engine = full
    prompts = [list(TEXT[start : start + length]) for start, length in ((0, 100), (10, 24), (50, 7))]
    options: Any = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "reuse_prefix": False, "logprobs": 1}
    together = engine.generate_batch(prompts, source="plain", **options)
    for prompt, found in zip(prompts, together, strict=True):
        alone = engine.generate(prompt, source="plain", **options)
        assert (found.token_ids, found.logprobs) == (alone.token_ids, alone.logprobs)


@pytest.mark.parametrize("name", EVERY)
def test_four_bits_cost_what_they_may(name: str, bundles: Any, tmp_path: Path) -> None:
    """The export's own check beside torch on the same integers, which ends it where they differ."""
    checkpoint, _ = bundles(name)
    linear = "f16" if "ragged" in name else "int4"  # blocks are of 32 columns
    rest = "f16" if "ragged" in name else "int8"
    options = ExportOptions(target=ModelFormats(linear, rest, rest), parity_tokens=48)
    result = export(str(checkpoint), tmp_path / "bundle", options=options)
    parity = result.models[0].parity
    assert parity is not None
    assert parity.kl < INT4_KL
