"""Medusa heads and MLP speculators draft what torch says they draft, and change nothing but the speed."""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
import tiny_heads
import torch
from every_option import EVERY_OPTION
from fitted_heads import EXACT, KINDS, LOW_BIT, NUM_LEVELS, TorchTarget, export_with, fitted_head
from reference.head_rounds import HeadRounds
from shared_passes import check_the_same_together

from pilotfish import Engine
from pilotfish.bindings import InvalidArgumentError, Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from command_line import CommandLine

NEW_TOKENS = 40
# What is drafted, and the children of each token, level by level.
SHAPES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "chain of 1": ({"num_draft_tokens": 1}, (1,)),
    "chain of 3": ({"num_draft_tokens": 3}, (1, 1, 1)),
    "three siblings": ({"tree": "dynamic", "tree_nodes": 3, "tree_depth": 1}, (3,)),
}
DRAFTING: tuple[dict[str, Any], ...] = (
    {"num_draft_tokens": 1},
    {"num_draft_tokens": 8},
    {"tree": "dynamic", "tree_nodes": 21, "tree_depth": 3},
    {"tree": "dynamic", "tree_nodes": 16},
    {"tree": "dynamic", "tree_nodes": 7, "tree_depth": 2},
    {"num_draft_tokens": None},
    {"source": "lookup+head", "num_draft_tokens": 5},
    {"source": "lookup+head"},
    {"source": "auto"},
    {"source": "auto", "num_draft_tokens": 3},
)


@pytest.fixture(scope="module")
def target(checkpoints: dict[str, Path]) -> TorchTarget:
    torch.set_num_threads(1)
    return TorchTarget(checkpoints["target"])


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def head(kind: str, target: TorchTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_heads.save_head(tmp_path_factory.mktemp(kind) / "head", *fitted_head(kind, target))


@pytest.fixture(scope="module")
def bundle(head: Path, checkpoints: dict[str, Path]) -> Path:
    return export_with(head.parent / "bundle", checkpoints["target"], head, LOW_BIT)


@pytest.fixture(scope="module")
def engine(bundle: Path) -> Iterator[Engine]:
    with Engine(bundle, threads=2, num_sequences=3, max_draft_tokens=24) as loaded:
        yield loaded
        loaded.check()


def prompts() -> list[list[int]]:
    chooser = random.Random(9)
    return [[chooser.randrange(256) for _ in range(length)] for length in (1, 2, 5, 31, 32, 33, 64, 130)]


@pytest.fixture(scope="module")
def exact(head: Path, checkpoints: dict[str, Path]) -> Iterator[Engine]:
    """In f32, as torch computes."""
    bundle = export_with(head.parent / "exact", checkpoints["target"], head, EXACT)
    with Engine(bundle, threads=2, max_draft_tokens=24) as loaded:
        yield loaded


@pytest.mark.parametrize("shape", SHAPES)
def test_drafts_are_those_of_torch(exact: Engine, kind: str, target: TorchTarget, shape: str) -> None:
    """The state, its tap and its position are all in the drafts: the tokens that each round accepts tell."""
    reference = HeadRounds(kind, target)
    drafting, widths = SHAPES[shape]
    found: list[int] = []
    expected: list[int] = []
    shifted: list[int] = []
    for prompt in prompts()[1:]:
        result = exact.generate(
            prompt, max_new_tokens=NEW_TOKENS, source="head", ignore_eos=True, explain=True, **drafting
        )
        assert {each.num_head for each in result.rounds[:-1]} <= set(range(1, 25))
        # The last rounds may have too little room for the whole tree.
        found += [each.num_tokens for each in result.rounds][:-2]
        expected += reference.rounds(prompt, result.token_ids, widths)[: len(result.rounds) - 2]
        shifted += reference.rounds(prompt, result.token_ids, widths, -1)[: len(result.rounds) - 2]
    assert found == expected != shifted
    assert max(found) > 1


@pytest.mark.parametrize("drafting", DRAFTING, ids=str)
def test_greedy_tokens_are_plain_decodings(engine: Engine, drafting: dict[str, Any]) -> None:
    totals = dict.fromkeys(("head_drafted", "head_accepted", "model_drafted", "lookup_drafted"), 0)
    for prompt, reuse in itertools.product(prompts(), (True, False)):
        plain = engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="plain")
        options = {"source": "head", "reuse_prefix": reuse} | drafting
        result = engine.generate(prompt, max_new_tokens=NEW_TOKENS, **options)
        assert (result.token_ids, result.finish_reason) == (plain.token_ids, plain.finish_reason)
        stats = result.stats
        assert stats.num_drafted == stats.num_head_drafted + stats.num_lookup_drafted
        assert stats.num_accepted == stats.num_head_accepted + stats.num_lookup_accepted
        for name in totals:
            totals[name] += getattr(stats, f"num_{name}")
    assert totals["model_drafted"] == 0
    if options["source"] == "head":
        assert totals["lookup_drafted"] == 0
    if drafting.get("num_draft_tokens") or drafting.get("tree"):
        assert 0 < totals["head_accepted"] < totals["head_drafted"]


def test_a_chain_is_no_deeper_than_the_head(engine: Engine) -> None:
    deep = engine.generate(prompts()[4], max_new_tokens=NEW_TOKENS, source="head", num_draft_tokens=24)
    level = engine.generate(prompts()[4], max_new_tokens=NEW_TOKENS, source="head", num_draft_tokens=NUM_LEVELS)
    assert (deep.stats.num_rounds, deep.stats.num_drafted) == (level.stats.num_rounds, level.stats.num_drafted)


def test_wider_trees_accept_more(engine: Engine) -> None:
    def length(**options: Any) -> float:
        stats = [engine.generate(prompt, max_new_tokens=60, source="head", **options).stats for prompt in prompts()]
        return sum(each.num_new_tokens - 1 for each in stats) / sum(each.num_rounds for each in stats)

    assert length(num_draft_tokens=1) < length(num_draft_tokens=3)
    assert length(num_draft_tokens=3) < length(tree="dynamic", tree_nodes=24)


@pytest.mark.parametrize("options", [{}, EVERY_OPTION, {"stop_ids": list(range(0, 256, 5))}, {"logprobs": 3}], ids=str)
@pytest.mark.parametrize("drafting", [{"num_draft_tokens": 3}, {"tree": "dynamic"}], ids=str)
def test_every_option_means_the_same(engine: Engine, options: dict[str, Any], drafting: dict[str, Any]) -> None:
    for prompt in prompts()[::3]:
        plain = list(engine.stream(prompt, max_new_tokens=24, source="plain", **options))
        events = list(engine.stream(prompt, max_new_tokens=24, source="head", **drafting, **options))
        assert [(e.token_id, e.logprob, e.top_logprobs) for e in events] == [
            (e.token_id, e.logprob, e.top_logprobs) for e in plain
        ]
    engine.check()


def test_an_echoed_prompt_is_drafted_after(engine: Engine) -> None:
    prompt = prompts()[5]
    plain = list(engine.stream(prompt, max_new_tokens=20, source="plain", echo=True))
    stream = engine.stream(prompt, max_new_tokens=20, source="head", num_draft_tokens=3, echo=True)
    assert [event.token_id for event in stream] == [event.token_id for event in plain]
    again = engine.generate(prompt, max_new_tokens=20, source="head", num_draft_tokens=3)
    assert (stream.stats.num_rounds, stream.stats.num_accepted) == (again.stats.num_rounds, again.stats.num_accepted)


@pytest.mark.parametrize("drafting", DRAFTING[:5], ids=str)
def test_in_shared_passes_drafts_are_the_same(engine: Engine, drafting: dict[str, Any]) -> None:
    """Each request's head reads its own rows of the pass: it accepts as much as alone."""
    options = {"max_new_tokens": NEW_TOKENS, "source": "head", "reuse_prefix": False} | drafting
    check_the_same_together(engine, prompts(), **options)


def test_requests_take_turns(engine: Engine) -> None:
    """Streams of one request are not those of another, whichever ran the target last."""
    options: dict[str, Any] = {"max_new_tokens": 24, "source": "head", "num_draft_tokens": 3}
    alone = [engine.generate(prompt, **options) for prompt in prompts()[2:5]]
    streams = [engine.stream(prompt, **options) for prompt in prompts()[2:5]]
    outputs: list[list[int]] = [[] for _ in streams]
    for _ in range(30):
        for stream, output in zip(streams, outputs, strict=True):
            output += [event.token_id for event in itertools.islice(stream, 1)]
    for stream, output, result in zip(streams, outputs, alone, strict=True):
        assert tuple(output) == result.token_ids
        assert stream.stats.num_accepted == result.stats.num_accepted
        stream.close()


def test_a_cancelled_request_leaves_the_engine_usable(engine: Engine) -> None:
    with engine.stream(prompts()[6], max_new_tokens=60, source="head", tree="dynamic") as stream:
        for _ in itertools.islice(stream, 5):
            pass
        stream.cancel()
        list(stream)
        assert stream.result().finish_reason == "cancelled"
    engine.check()
    plain = engine.generate(prompts()[6], max_new_tokens=20, source="plain").token_ids
    assert engine.generate(prompts()[6], max_new_tokens=20, source="head", tree="dynamic").token_ids == plain


def test_sampled_dynamic_trees_repeat_plain_decoding_seed_by_seed(engine: Engine) -> None:
    accepted = 0
    for seed in range(20):
        options: dict[str, Any] = {"max_new_tokens": 30, "temperature": 0.7, "top_p": 0.9, "seed": seed}
        plain = engine.generate(prompts()[3], source="plain", **options)
        for drafting in ({"tree": "dynamic", "tree_nodes": 20}, {"num_draft_tokens": None}):
            result = engine.generate(prompts()[3], source="head", **drafting, **options)
            assert result.token_ids == plain.token_ids
            accepted += result.stats.num_accepted
    assert accepted > 0


def test_a_bundle_may_have_both(head: Path, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    bundle = export_with(tmp_path / "bundle", checkpoints["target"], head, LOW_BIT, checkpoints["draft"])
    with Engine(bundle, threads=2) as engine:
        for prompt in prompts():
            plain = engine.generate(prompt, max_new_tokens=NEW_TOKENS, source="plain", ignore_eos=True)
            for source, idle in (("draft", "head"), ("head", "model"), ("lookup+head", "model"), ("auto", None)):
                for number in (4, None):
                    result = engine.generate(
                        prompt, max_new_tokens=NEW_TOKENS, source=source, num_draft_tokens=number, ignore_eos=True
                    )
                    assert result.token_ids == plain.token_ids
                    assert idle is None or getattr(result.stats, f"num_{idle}_drafted") == 0
        numbered = engine.generate(prompts()[3], max_new_tokens=NEW_TOKENS, num_draft_tokens=3)
        assert (numbered.stats.num_head_drafted, numbered.stats.num_model_drafted > 0) == (0, True)
        engine.check()


@pytest.mark.parametrize("calibration", ["off", "refresh"])
def test_costs_of_a_head(bundle: Path, calibration: str) -> None:
    with Engine(bundle, threads=2, calibration=calibration) as engine:
        assert 0 < engine.pass_cost(1, context=32, model=Model.HEAD) < 1
        assert engine.info.has_head
        assert engine.info.head_weight_bytes > 0
        plain = engine.generate(prompts()[5], max_new_tokens=60, source="plain", ignore_eos=True)
        assert engine.generate(prompts()[5], max_new_tokens=60, ignore_eos=True).token_ids == plain.token_ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "head"}, "source is 'head', but the bundle has no head: export one with --head"),
        ({"source": "lookup+head"}, "source is 'lookup\\+head', but the bundle has no head"),
    ],
)
def test_what_a_bundle_without_a_head_refuses(tiny_bundle: Path, options: dict[str, Any], message: str) -> None:
    with Engine(tiny_bundle, threads=1, max_draft_tokens=15) as engine:
        assert not engine.info.has_head
        with pytest.raises(InvalidArgumentError, match=message):
            engine.generate("x", **options)


def test_a_bundle_without_a_draft_model_drafts_with_none(engine: Engine) -> None:
    with pytest.raises(InvalidArgumentError, match="has no draft"):
        engine.generate("x", source="draft")


def test_commands(bundle: Path, kind: str, cli: CommandLine, tmp_path: Path) -> None:
    finished = cli("info", bundle, "--json", tmp_path / "info.json")
    assert f"head: {kind} from head" in finished.out
    assert json.loads((tmp_path / "info.json").read_text())["head"]["num_predictions"] == NUM_LEVELS
    for device in ("cpu", "cuda"):
        finished = cli("plan", bundle, "--device", device)
        assert "head weights" in finished.out
    finished = cli("run", bundle, "abc", "--raw", "--source", "head", "--draft-tokens", "3", "--explain")
    assert finished.exit_code == 0, finished.err
    assert "by the head" in finished.err
    prompts_file = tmp_path / "prompts.jsonl"
    prompts_file.write_text(json.dumps({"category": "a", "prompt": "one"}) + "\n")
    scores = tmp_path / "scores.json"
    finished = cli("evaluate-draft", bundle, "--prompts", prompts_file, "--new-tokens", 24, "--json", scores)
    assert finished.exit_code == 0, finished.err
    (report,) = json.loads(scores.read_text())["bundles"]
    shapes = {each["shape"]: each for each in report["head"][-1]["shapes"]}
    assert list(shapes) == ["chain of 1", "chain of 2", "chain of 3", "dynamic tree", "as many as pay"]
    assert shapes["chain of 3"]["acceptance_length"] <= shapes["dynamic tree"]["acceptance_length"]
    fast = ("--new-tokens", 8, "--prompt-tokens", 8, "--repeats", 1, "--pass-repeats", 1)
    finished = cli("bench", bundle, *fast, "--json", tmp_path / "bench.json")
    assert finished.exit_code == 0, finished.err
    numbers = json.loads((tmp_path / "bench.json").read_text())
    assert [run["mode"] for run in numbers["runs"]] == ["plain", "head", "lookup", "lookup+head", "auto"]
    assert numbers["outputs_equal"]
