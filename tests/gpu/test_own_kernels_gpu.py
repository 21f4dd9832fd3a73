"""Bundles run with the kernels of ONNX Runtime's CUDA provider refused, as on a card that it has no code for.

PILOTFISH_CUDA_PROVIDER=none lets no graph load that needs one, so that what runs here has kernels of ours alone.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from earlier_nodes import operators_of, with_earlier_nodes
from gpu.make_head_bundles import KINDS, SHARED

from pilotfish import Engine
from pilotfish.bindings import InvalidArgumentError, Model, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import CommandLine

pytestmark = pytest.mark.gpu

NEW_TOKENS = 32
LENGTHS = (1, 31, 64, 150)  # of prompts: up to more rows than a recorded pass has
# Relative norm of a row: the CPU rounds activations to 8 bits, the GPU to f16.
LOGIT_TOLERANCE = 0.07
LOGIT_TOLERANCE_OF_30_LAYERS = 0.15  # 0.116 was measured with SmolLM2 on an H200
HEAD_DRAFTS: tuple[dict[str, Any], ...] = (
    {"source": "head", "num_draft_tokens": 4},
    {"source": "head", "tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
    {"source": "auto"},
)
MODEL_DRAFTS: tuple[dict[str, Any], ...] = (
    {"num_draft_tokens": 4},
    {"tree": "dynamic", "tree_nodes": 12, "tree_depth": 4},
    {"source": "auto"},
)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's kernels count as missing."""
    monkeypatch.setenv("PILOTFISH_CUDA_PROVIDER", "none")


def prompts(num_ids: int) -> list[list[int]]:
    chooser = random.Random(13)
    return [[chooser.randrange(2, num_ids) for _ in range(length)] for length in LENGTHS]


def check_drafts(engine: Engine, drafts: tuple[dict[str, Any], ...]) -> None:
    """What is drafted leaves plain decoding's tokens, and some of it is accepted."""
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    num_accepted = 0
    for prompt in prompts(engine.manifest.tokenizer.size):
        plain = engine.generate(prompt, source="plain", **options)
        assert len(plain.token_ids) == NEW_TOKENS
        for drafting in drafts:
            result = engine.generate(prompt, **drafting, **options)
            assert result.token_ids == plain.token_ids
            num_accepted += result.stats.num_accepted
    assert num_accepted > 0
    engine.check()


def check_logits(engine: Engine, bundle: Path, tolerance: float = LOGIT_TOLERANCE) -> None:
    """The target's, beside the CPU's."""
    ids = prompts(engine.manifest.tokenizer.size)[-1]
    with Engine(bundle, threads=2, calibration="off") as on_cpu:
        expected, found = on_cpu.logits(ids, Model.TARGET), engine.logits(ids, Model.TARGET)
    error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert error.max() < tolerance


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_head(kind: str, head_bundle: Callable[[str], Path]) -> None:
    bundle = head_bundle(kind)
    assert operators_of(bundle) == set()
    with Engine(bundle, device="cuda", max_draft_tokens=24) as engine:
        check_drafts(engine, HEAD_DRAFTS)
        check_logits(engine, bundle)


@pytest.mark.usefixtures("refused")
def test_heads_that_share_the_output_layer(head_bundle: Callable[[str], Path]) -> None:
    """Their states are rows of one product, more than the rows of the pass."""
    bundle = head_bundle(SHARED)
    assert operators_of(bundle) == set()
    with Engine(bundle, device="cuda", max_draft_tokens=15) as engine, Engine(bundle, threads=2) as on_cpu:
        for prompt in prompts(256):
            options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True}
            plain = engine.generate(prompt, source="plain", **options)
            for drafting in HEAD_DRAFTS:
                assert engine.generate(prompt, **drafting, **options).token_ids == plain.token_ids
            drafted = [each.generate(prompt, **HEAD_DRAFTS[0], **options).stats for each in (engine, on_cpu)]
            assert min(stats.num_head_drafted for stats in drafted) > 0


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("name", ["tiny", "asym", "f16", "tiny int8"])
def test_random_pairs(name: str, make_bundle: Callable[[str], Path]) -> None:
    with Engine(make_bundle(name), device="cuda", max_draft_tokens=12) as engine:
        check_drafts(engine, MODEL_DRAFTS)
        check_logits(engine, make_bundle(name))


@pytest.mark.usefixtures("refused")
def test_the_default_bundle(real_bundle: Path) -> None:
    with Engine(real_bundle, device="cuda", max_draft_tokens=12) as engine:
        check_drafts(engine, MODEL_DRAFTS)
        check_logits(engine, real_bundle, LOGIT_TOLERANCE_OF_30_LAYERS)


@pytest.mark.parametrize("kind", KINDS)
def test_bundles_of_earlier_versions(kind: str, head_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    """They load where the provider has kernels; the target's rows have the same bits."""
    bundle = with_earlier_nodes(head_bundle(kind), tmp_path / "earlier")
    assert "Gather" in operators_of(bundle)
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "source": "plain", "logprobs": 2}
    with (
        Engine(bundle, device="cuda", max_draft_tokens=24) as earlier,
        Engine(head_bundle(kind), device="cuda") as engine,
    ):
        check_drafts(earlier, HEAD_DRAFTS)
        for prompt in prompts(engine.manifest.tokenizer.size):
            before, after = (list(each.stream(prompt, **options)) for each in (earlier, engine))
            assert [event.token_id for event in before] == [event.token_id for event in after]
            assert [event.logprob for event in before] == [event.logprob for event in after]


def test_an_earlier_bundle_is_refused_by_name(
    tiny: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = with_earlier_nodes(tiny, tmp_path / "earlier")
    with Engine(bundle, device="cuda", calibration="off") as engine:
        assert engine.generate([5, 6, 7], max_new_tokens=4, ignore_eos=True).token_ids
    monkeypatch.setenv("PILOTFISH_CUDA_PROVIDER", "none")
    message = r"target\.onnx: Gather \(rows\.picked\) needs a CUDA kernel of ONNX Runtime itself, .* export the bundle"
    with pytest.raises(UnsupportedError, match=message):
        Engine(bundle, device="cuda")
    assert cli("run", bundle, "w5", "--device", "cuda").exit_code == 2
    with Engine(tiny, device="cuda", calibration="off") as engine:
        assert engine.generate([5, 6, 7], max_new_tokens=4, ignore_eos=True).token_ids


def test_the_variable_has_one_value(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CUDA_PROVIDER", "some")
    with pytest.raises(InvalidArgumentError, match="PILOTFISH_CUDA_PROVIDER=some: it can be none"):
        Engine(tiny, device="cuda")


def test_doctor_says_whether_the_providers_kernels_run(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def provider() -> str:
        return str(json.loads(cli("doctor", "--json", "-").out.splitlines()[-1])["CUDA provider"])

    assert provider().endswith("; its kernels run on cuda:0")
    monkeypatch.setenv("PILOTFISH_CUDA_PROVIDER", "none")
    assert "; it has no kernels for cuda:0 (" in provider()
