"""Groups of flags: what Typer sees of a command, and what the command gets."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
import typer
from typer.testing import CliRunner

from pilotfish import Engine
from pilotfish.runtime.cli.flags import EngineFlags, LearningFlags, SamplingFlags, TreeFlags, with_groups
from pilotfish.runtime.options import GenerateOptions


def test_a_group_stands_for_its_flags() -> None:
    received = []

    @with_groups
    def command(bundle: str, *, sampling: SamplingFlags, seeds: int = 2, engine_flags: EngineFlags) -> None:
        received.append((bundle, sampling, seeds, engine_flags))

    app = typer.Typer()
    app.command()(command)
    arguments = ["x", "--top-k", "4", "--temperature", "1", "--logit-bias", "3=1", "--logit-bias", "5=-inf"]
    arguments += ["--seeds", "9", "--threads", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    bundle, sampling, seeds, engine_flags = received[0]
    assert (bundle, seeds, engine_flags) == ("x", 9, EngineFlags(threads=2))
    given = {"temperature": 1, "top_k": 4, "logit_bias": {3: 1.0, 5: float("-inf")}}
    assert sampling.keywords() == SamplingFlags().keywords() | given


@pytest.mark.parametrize("group", [SamplingFlags, TreeFlags])
def test_flags_of_a_generation_default_to_the_engines_own(group: type[SamplingFlags | TreeFlags]) -> None:
    assert GenerateOptions(**group().keywords()) == GenerateOptions()


def test_flags_of_an_engine_default_to_its_own() -> None:
    defaults = {name: each.default for name, each in inspect.signature(Engine).parameters.items()}
    for field in (*dataclasses.fields(EngineFlags), *dataclasses.fields(LearningFlags)):
        assert field.default == defaults[field.name], field.name


def test_a_dynamic_tree_has_as_many_tokens_as_an_engine_has_room_for_by_default() -> None:
    """Also where a command makes more room."""
    assert TreeFlags(tree="dynamic").keywords()["tree_nodes"] == 8
    request = GenerateOptions(tree="dynamic").to_request(has_draft=True, max_draft_tokens=8)
    assert (request.tree_nodes, request.tree_depth) == (8, 6)


def test_a_tree_makes_room_for_itself() -> None:
    assert TreeFlags().room(8) == 8
    assert TreeFlags(tree="dynamic").room(8) == 8
    assert TreeFlags(tree="dynamic", tree_nodes=20).room(8) == 20
