"""Every architecture of the table runs on a GPU and is right there.

Their bundles are exported here, which needs torch and transformers; PILOTFISH_ARCHITECTURE_BUNDLES names a folder that
has them already, as ``python tests/gpu/make_architecture_bundles.py FOLDER`` writes them. What the CPU computes with a
bundle is compared with transformers in tests/e2e/test_architectures.py, and what a GPU computes with the CPU here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gpu.make_architecture_bundles import folder_name, make_architecture_bundle

from pilotfish import Engine
from pilotfish.runtime.verify import self_draft_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.gpu

TEXT = b"The quick brown fox jumps over the lazy dog, and 12 of its kind follow it into the deep woods; then it rests."
LENGTHS = (24, 100)  # of prompts: within every window, and beyond them
NEW_TOKENS = 12
NATS = 0.1  # that a logarithm of a probability may differ by: weights and activations are f16 on a GPU


def names() -> list[str]:
    """Of the table, or of the folders that are there: the table needs transformers."""
    folder = os.environ.get("PILOTFISH_ARCHITECTURE_BUNDLES")
    if folder:
        return sorted(path.name for path in Path(folder).iterdir() if (path / "manifest.json").exists())
    architectures = pytest.importorskip("architectures", reason="PILOTFISH_ARCHITECTURE_BUNDLES names no folder")
    return [folder_name(name) for name in architectures.ARCHITECTURES]


NAMES = names()


@pytest.fixture(scope="module", params=NAMES)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = os.environ.get("PILOTFISH_ARCHITECTURE_BUNDLES")
    if folder:
        return Path(folder) / request.param
    from architectures import ARCHITECTURES

    name = next(name for name in ARCHITECTURES if folder_name(name) == request.param)
    made = make_architecture_bundle(tmp_path_factory.mktemp("architecture"), name)
    return made.rename(made.parent / request.param)


@pytest.fixture(scope="module")
def engine(bundle: Path) -> Iterator[Engine]:
    with Engine(bundle, device="cuda", num_sequences=3, calibration="off") as loaded:
        yield loaded
        loaded.check()


def greedy(engine: Engine, prompt: list[int], **options: Any) -> Any:
    return engine.generate(prompt, max_new_tokens=NEW_TOKENS, ignore_eos=True, reuse_prefix=False, **options)


def test_probabilities_are_those_of_the_cpu(engine: Engine, bundle: Path) -> None:
    prompt = list(TEXT[: LENGTHS[1]])
    with Engine(bundle, threads=2, calibration="off") as on_cpu:
        found, expected = (
            greedy(each, prompt, source="plain", logprobs=1, echo=True).logprobs[1 : LENGTHS[1]]
            for each in (engine, on_cpu)
        )
    np.testing.assert_allclose(found, expected, rtol=0, atol=NATS)


def test_chunks_of_a_prompt_change_nothing(engine: Engine, bundle: Path) -> None:
    prompt = list(TEXT[: LENGTHS[1]])
    with Engine(bundle, device="cuda", prefill_chunk=16, calibration="off") as chunked:
        found = greedy(chunked, prompt, source="plain")
    assert found.token_ids == greedy(engine, prompt, source="plain").token_ids


@pytest.mark.parametrize("length", LENGTHS)
def test_drafts_change_nothing(engine: Engine, bundle: Path, length: int, tmp_path: Path) -> None:
    prompt = list(TEXT[:length])
    plain = greedy(engine, prompt, source="plain")
    (tmp_path / "self").mkdir()
    itself = self_draft_bundle(bundle, tmp_path / "self")
    with Engine(itself, device="cuda", draft_window=0, calibration="off") as drafting:  # which sees the whole prompt
        chain = greedy(drafting, prompt, source="draft", num_draft_tokens=4)
        tree = greedy(drafting, prompt, source="draft", tree="dynamic", tree_nodes=6)
    assert chain.token_ids == tree.token_ids == plain.token_ids
    assert chain.stats.num_accepted >= chain.stats.num_drafted / 2


def test_a_batch_changes_nothing(engine: Engine) -> None:
    prompts = [list(TEXT[start : start + length]) for start, length in ((0, 100), (10, 24), (50, 7))]
    options: Any = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "reuse_prefix": False}
    together = engine.generate_batch(prompts, source="plain", **options)
    for prompt, found in zip(prompts, together, strict=True):
        assert found.token_ids == engine.generate(prompt, source="plain", **options).token_ids
