"""Heads of every kind on a GPU draft what they draft on the CPU, and change nothing but the speed.

Their bundles are exported here, which needs torch and transformers; PILOTFISH_HEAD_BUNDLES names a folder that has them
already, one a kind, as ``python tests/gpu/make_head_bundles.py FOLDER`` writes them.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from gpu.cpu_node import through_the_cpu
from gpu.make_head_bundles import KINDS
from shared_passes import check_the_same_together

from pilotfish import Engine
from pilotfish.bindings import UnsupportedError, calls
from pilotfish.runtime.verify import VerifyOptions, verify
from pilotfish.runtime.verify_checks import Amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.gpu

NEW_TOKENS = 40
CHAINING = ("eagle", "eagle3", "deepseek")  # whose chains the device drafts by itself
DRAFTING: tuple[dict[str, Any], ...] = (
    {"num_draft_tokens": 1},
    {"num_draft_tokens": 5},
    {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
    {"tree": "dynamic", "tree_nodes": 15},
    {"num_draft_tokens": None},
    {"source": "lookup+head", "num_draft_tokens": 5},
    {"source": "auto"},
)
# Of the tokens that heads get accepted: the CPU rounds activations to 8 bits, the GPU to f16.
SHARE = 0.15


def prompts() -> list[list[int]]:
    chooser = random.Random(9)
    return [[chooser.randrange(256) for _ in range(length)] for length in (1, 5, 31, 32, 33, 64, 100, 130)]


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def engine(kind: str, head_bundle: Callable[[str], Path]) -> Iterator[Engine]:
    with Engine(head_bundle(kind), device="cuda", num_sequences=3, max_draft_tokens=24) as loaded:
        yield loaded
        loaded.check()


@pytest.mark.parametrize("drafting", DRAFTING, ids=str)
def test_greedy_tokens_are_plain_decodings(engine: Engine, kind: str, drafting: dict[str, Any]) -> None:
    options = {"source": "head"} | drafting
    num_head = num_accepted = 0
    for prompt in prompts():
        plain = engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="plain")
        assert plain.stats.num_device_rounds == plain.stats.num_rounds
        for reuse in (True, False):
            result = engine.generate(prompt, max_new_tokens=NEW_TOKENS, reuse_prefix=reuse, **options)
            assert (result.token_ids, result.finish_reason) == (plain.token_ids, plain.finish_reason)
            assert result.stats.num_device_rounds == result.stats.num_rounds
            num_head += result.stats.num_head_drafted
            num_accepted += result.stats.num_head_accepted
    if drafting.get("num_draft_tokens") or drafting.get("tree"):
        assert 0 < num_accepted < num_head, kind


def test_as_much_is_accepted_as_on_the_cpu(engine: Engine, kind: str, head_bundle: Callable[[str], Path]) -> None:
    """A stream of another layer or position, or a cache that is not its own, would cost a head its acceptance."""
    with Engine(head_bundle(kind), threads=2, max_draft_tokens=24) as on_cpu:
        for options in ({"num_draft_tokens": 3}, {"tree": "dynamic", "tree_nodes": 15}):
            lengths = []
            for each in (on_cpu, engine):
                stats = [
                    each.generate(prompt, max_new_tokens=60, source="head", ignore_eos=True, **options).stats
                    for prompt in prompts()
                ]
                lengths.append(sum(found.num_accepted for found in stats) / sum(found.num_rounds for found in stats))
            assert lengths[0] > 0
            assert abs(lengths[1] / lengths[0] - 1) < SHARE


@pytest.mark.parametrize("drafting", DRAFTING, ids=str)
def test_each_has_the_bits_that_it_has_alone(engine: Engine, drafting: dict[str, Any]) -> None:
    """Whatever is drafted is verified together."""
    options = {"source": "head"} | drafting
    check_the_same_together(engine, prompts()[1:], max_new_tokens=NEW_TOKENS, ignore_eos=True, **options)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 3}], ids=str)
def test_chains_of_a_head_share_rounds(engine: Engine, kind: str, options: dict[str, Any]) -> None:
    """Those of one round have the same times of verification by the GPU's clock."""
    if kind not in CHAINING:
        pytest.skip("this head drafts on the host")
    drafting: dict[str, Any] = {"source": "head", "num_draft_tokens": 4, "max_new_tokens": 60, "ignore_eos": True}
    asked = [[7] * 5, list(range(100)), [9] * 64]  # which leave from 5 to all rows of a pass unread
    alone = [engine.generate(ids, reuse_prefix=False, **drafting, **options) for ids in asked]
    streams = [engine.stream(ids, reuse_prefix=False, **drafting, **options) for ids in asked]
    try:
        while any(stream.stats.num_rounds == 0 for stream in streams):
            assert engine.step_together(streams) == [None] * len(streams)
        for _ in range(5):
            before = [stream.stats.verify_seconds for stream in streams]
            engine.step_together(streams)
            took = [stream.stats.verify_seconds - start for stream, start in zip(streams, before, strict=True)]
            assert took == pytest.approx([took[0]] * len(streams), rel=1e-6)
    finally:
        for stream in streams:
            stream.close()
    together = engine.generate_batch(asked, reuse_prefix=False, **drafting, **options)
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]
    assert [result.stats.num_accepted for result in together] == [result.stats.num_accepted for result in alone]


@pytest.mark.parametrize(
    "drafting",
    [
        {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
        {"tree": "dynamic", "tree_nodes": 7, "tree_depth": 2, "temperature": 0.8, "seed": 3},
        {"num_draft_tokens": 3, "logprobs": 1},
    ],
    ids=str,
)
def test_trees_of_a_head_share_rounds(engine: Engine, drafting: dict[str, Any]) -> None:
    """Whoever grows them, and whoever chooses."""
    options: dict[str, Any] = {"source": "head", "max_new_tokens": 80, "ignore_eos": True, "reuse_prefix": False}
    asked = [[7] * 5, list(range(100)), [9] * 64]
    streams = [engine.stream(ids, **options, **drafting) for ids in asked]
    try:
        while any(stream.stats.num_rounds == 0 for stream in streams):
            assert engine.step_together(streams) == [None] * len(streams)
        for _ in range(5):
            before = [stream.stats.verify_seconds for stream in streams]
            engine.step_together(streams)
            took = [stream.stats.verify_seconds - start for stream, start in zip(streams, before, strict=True)]
            assert took == pytest.approx([took[0]] * len(streams), rel=1e-6)
    finally:
        for stream in streams:
            stream.close()


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7, "top_p": 0.9},
        {"repetition_penalty": 1.1, "logprobs": 2},
        {"temperature": 0.8, "typical_p": 0.9, "frequency_penalty": 0.3},
    ],
    ids=str,
)
def test_every_draft_leaves_plain_decodings_text(engine: Engine, options: dict[str, Any]) -> None:
    for prompt in prompts()[2::2]:
        options = {"max_new_tokens": 24, "seed": 5, "ignore_eos": True} | options
        plain = engine.generate(prompt, source="plain", **options)
        for drafting in (
            {"tree": "dynamic", "tree_nodes": 15},
            {"tree": "dynamic", "tree_nodes": 10, "tree_depth": 3},
            {"num_draft_tokens": 1},
            {"num_draft_tokens": 4},
            {"num_draft_tokens": None},
        ):
            drafted = engine.generate(prompt, source="head", **drafting, **options)
            assert drafted.token_ids == plain.token_ids


@pytest.mark.parametrize(
    "drafting", [{"num_draft_tokens": 4}, {"tree": "dynamic", "tree_nodes": 10, "tree_depth": 3}], ids=str
)
def test_a_seed_repeats_its_tokens(engine: Engine, drafting: dict[str, Any]) -> None:
    for prompt in prompts()[3:6]:
        options: dict[str, Any] = {"max_new_tokens": 24, "temperature": 1.1, "seed": 8, "source": "head"}
        first, second = (engine.generate(prompt, **options, **drafting) for _ in range(2))
        alone = engine.generate(prompt, **options, **drafting, reuse_prefix=False)
        assert first.token_ids == second.token_ids == alone.token_ids


def test_turns_reuse_the_heads_cache(engine: Engine, kind: str) -> None:
    chooser = random.Random(5)
    history: list[int] = []
    for turn in range(4):
        history += [chooser.randrange(256) for _ in range(9)]
        options: dict[str, Any] = {"max_new_tokens": 13, "source": "head", "num_draft_tokens": 3, "ignore_eos": True}
        reused = engine.generate(history, **options)
        alone = engine.generate(history, **options, reuse_prefix=False)
        assert reused.token_ids == alone.token_ids
        if kind in CHAINING:
            assert reused.stats.num_accepted == alone.stats.num_accepted
        assert turn == 0 or reused.stats.num_prefilled_target < len(history)
        history += reused.token_ids


def test_requests_take_turns(engine: Engine) -> None:
    """Streams of one request are not those of another, whichever ran the target last."""
    options: dict[str, Any] = {"max_new_tokens": 24, "source": "head", "num_draft_tokens": 4, "ignore_eos": True}
    alone = [engine.generate(prompt, **options) for prompt in prompts()[2:5]]
    streams = [engine.stream(prompt, **options) for prompt in prompts()[2:5]]
    outputs: list[list[int]] = [[] for _ in streams]
    for _ in range(24):
        for stream, output in zip(streams, outputs, strict=True):
            output.append(next(stream).token_id)
    for stream, output, result in zip(streams, outputs, alone, strict=True):
        assert tuple(output) == result.token_ids
        assert list(stream) == []
        assert stream.stats.num_accepted == result.stats.num_accepted


def test_a_long_prompt_and_an_echoed_one(engine: Engine) -> None:
    chooser = random.Random(4)
    prompt = [chooser.randrange(256) for _ in range(190)]
    options: dict[str, Any] = {"max_new_tokens": 30, "ignore_eos": True}
    plain = engine.generate(prompt, source="plain", **options)
    for echo in (False, True):
        drafted = engine.generate(prompt, source="head", num_draft_tokens=3, echo=echo, **options)
        assert drafted.token_ids[-len(plain.token_ids) :] == plain.token_ids


def test_verify_finds_the_bundle_lossless(kind: str, head_bundle: Callable[[str], Path]) -> None:
    options = VerifyOptions(
        prompts=("Some words to go on from.", "ab", "x"),
        amount=Amount(new_tokens=16, sampled_tokens=100),
        device="cuda",
    )
    report = verify(head_bundle(kind), options, lambda _: None)
    assert [check for check in report.checks if not check.passed] == []


def test_the_plan_holds(kind: str, head_bundle: Callable[[str], Path]) -> None:
    before = calls.cuda_info(0, measure=False).free_bytes
    with Engine(head_bundle(kind), device="cuda", max_draft_tokens=15) as engine:
        for drafting in (
            {"num_draft_tokens": 15},
            {"tree": "dynamic", "tree_nodes": 15, "tree_depth": 3},
            {"num_draft_tokens": None},
        ):
            engine.generate([5] * 150, max_new_tokens=60, source="head", ignore_eos=True, **drafting)
        used = before - calls.cuda_info(0, measure=False).free_bytes
        assert engine.info.has_head
        assert engine.info.head_weight_bytes > 0
        assert used <= engine.info.total_bytes


def edited(bundle: Path, folder: Path, role: str, change: Callable[[onnx.ModelProto], None]) -> Path:
    """A copy of a bundle with another graph of its head."""
    copy = Path(shutil.copytree(bundle, folder / "bundle"))
    content = json.loads((copy / "manifest.json").read_text())
    path = copy / f"head.{role}.onnx"
    model = onnx.load(path, load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    content["head"]["graphs"][role].update(bytes=path.stat().st_size, sha256=digest)
    (copy / "manifest.json").write_text(json.dumps(content))
    return copy


def test_a_node_that_the_provider_lacks_is_named(head_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    def put_it_last(model: onnx.ModelProto) -> None:
        last = model.graph.node[-1]
        last.output[0] = "before"
        model.graph.node.extend(through_the_cpu("before", "features"))

    bundle = edited(head_bundle("eagle3"), tmp_path, "features", put_it_last)
    with pytest.raises(UnsupportedError, match=r"head\.features\.onnx: .* 1 of its nodes, Max \(of_the_cpu\)"):
        Engine(bundle, device="cuda")


def test_a_format_that_the_kernels_lack(head_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(head_bundle("medusa"), tmp_path / "bundle"))
    content = json.loads((copy / "manifest.json").read_text())
    content["head"]["format"] = "f32"
    (copy / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(UnsupportedError, match=r"the head's weights are f32.*--head-format int8"):
        Engine(copy, device="cuda")
