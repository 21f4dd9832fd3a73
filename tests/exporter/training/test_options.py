"""Every refusal of an option, and the command line that makes the same options."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.exporter.options import ModelFormats
from pilotfish.exporter.training import (
    DraftShape,
    EagleShape,
    MedusaShape,
    SelfText,
    SpeculatorShape,
    Stage,
    TrainOptions,
)
from pilotfish.exporter.training.command import add_flags, command_line, options_of
from pilotfish.exporter.training.errors import TrainingOptionError
from pilotfish.exporter.training.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilotfish.exporter.training.shapes import HeadShape

BASE = {"target": "t", "data": Path("data"), "out": Path("out")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DraftShape(num_layers=0), "num_layers is 0; it must be at least 1"),
        (
            lambda: DraftShape(hidden_size=260, num_heads=4),
            r"hidden_size is 260; it must be a multiple of 2 \* num_heads",
        ),
        (lambda: DraftShape(num_heads=4, num_kv_heads=3), "num_heads is 4; it must be a multiple of num_kv_heads = 3"),
        (lambda: DraftShape(ffn_size=100), "ffn_size is 100; low-bit weights need a multiple of 32"),
        (lambda: Stage(1, 1, 1e-3, 0), "length is 1; it must be at least 2"),
        (lambda: Stage(8, -1, 1e-3, 0), "steps is -1; it must be at least 0"),
        (lambda: Stage(8, 5, 0.0, 0), "learning_rate is 0.0; it must lie between 0 and 1"),
        (lambda: Stage(8, 5, float("nan"), 0), "learning_rate is nan"),
        (lambda: Stage(8, 5, 1e-3, 5), "warmup_steps is 5; it must be below steps = 5"),
        (lambda: SelfText(temperatures=()), "give at least one"),
        (lambda: SelfText(temperatures=(-0.1,)), "none below 0"),
        (lambda: SelfText(excerpt_share=1.5), "excerpt_share is 1.5; it must lie in 0..1"),
        (lambda: SelfText(tokens=0), "tokens is 0; it must be at least 1"),
        (lambda: MedusaShape(num_heads=9), "num_heads is 9; at most 8 can be trained"),
        (lambda: MedusaShape(decay=0.0), "decay is 0.0; it must lie above 0"),
        (lambda: SpeculatorShape(inner_dim=100), "inner_dim is 100; low-bit weights need a multiple of 32"),
        (lambda: EagleShape(version=2), "version is 2; EAGLE heads of version 1 and 3 can be trained"),
        (lambda: EagleShape(version=1, draft_vocab=9), "no draft_vocab, no taps"),
        (lambda: EagleShape(regression=1.0), "regression is 1.0; EAGLE-3 heads have none"),
        (lambda: EagleShape(taps=(1, 2)), "reads three different ones"),
        (lambda: EagleShape(ffn_size=-1), "ffn_size is -1; it must be at least 1"),
    ],
)
def test_refused_parts(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TrainingOptionError, match=message):
        make()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "l2"}, "loss is 'l2'; choose one of forward-kl, reverse-kl, total-variation"),
        ({"dtype": "fp16"}, "dtype is 'fp16'; choose one of bf16, fp32"),
        ({"device": "tpu"}, "device is 'tpu'; choose one of auto, cuda, cpu"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"patience": 0}, "patience is 0; it must be at least 1"),
        ({"batch_tokens": 1000}, "batch_tokens is 1000; the text stage needs a multiple of .* = 1024"),
        ({"batch_tokens": 1024 * 3, "gradient_accumulation": 2}, "batch_tokens is 3072; .* = 2048"),
        ({"writing": SelfText(prompt_tokens=300, answer_tokens=300)}, "is 600; a row of the second stage holds 512"),
        ({"text": Stage(8, 0, 0.1, 0), "self_text": Stage(8, 0, 0.1, 0)}, "both stages have 0 steps"),
        ({"earlier": (Path("draft"),), "shape": MedusaShape()}, "a medusa head cannot be trained to complete them"),
        ({"user_turns": Path("t.jsonl"), "written": Path("run")}, "user_turns is t.jsonl, but written is run"),
        ({"user_turns": Path("t.jsonl"), "self_text": Stage(8, 0, 0.1, 0)}, "but self_text.steps is 0"),
        ({"time_limit_s": 0.0}, "time_limit_s is 0.0; it must be above 0"),
        ({"out": Path("data/draft")}, "must not contain or lie in the data"),
        ({"out": Path("data/..")}, "must not contain or lie in the data"),
    ],
)
def test_refused_options(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingOptionError, match=message):
        TrainOptions(**{**BASE, **changes})


def test_batch_must_divide_by_processes() -> None:
    options = TrainOptions(**BASE)
    assert options.rows_per_pass(options.text, 4) == 16
    with pytest.raises(TrainingOptionError, match="3 processes times 1 passes need a multiple of 3"):
        options.rows_per_pass(options.text, 3)


def parse(command: str) -> TrainOptions:
    _program, _train, kind, *flags = shlex.split(command.replace("\\\n", " "))
    parser = argparse.ArgumentParser()
    add_flags(parser, kind)
    return options_of(parser.parse_args(flags), kind)


@pytest.mark.parametrize("kind", SHAPES)
def test_command_line_of_defaults_names_only_what_is_required(kind: str) -> None:
    options = TrainOptions(**BASE, shape=SHAPES[kind]())
    command = command_line(options)
    assert command.split() == shlex.split(f"pilotfish train {kind} \\\\ --target t \\\\ --data data \\\\ --out out")
    assert parse(command) == options


@pytest.mark.parametrize(
    "shape",
    [
        MedusaShape(num_heads=2, num_blocks=3, own_output=True, decay=0.5),
        SpeculatorShape(num_stages=5, inner_dim=64, tie_weights=False, decay=0.25),
        EagleShape(3, 5, 96, 8, 4, 1000, (1, 2, 3), 0.9, 0.125),
        EagleShape(version=1, unroll=1, noise=0.1, regression=10.0),
    ],
)
def test_command_line_of_every_shape(shape: HeadShape) -> None:
    options = TrainOptions(**BASE, shape=shape, initial=Path("old head"), written=Path("other run"))
    assert parse(command_line(options)) == options


def test_command_line_of_every_option() -> None:
    options = TrainOptions(
        target="a target",
        data=Path("some data"),
        out=Path("out"),
        shape=DraftShape(64, 3, 2, 1, 96),
        initial=Path("old draft"),
        earlier=(Path("first draft"), Path("second")),
        user_turns=Path("turns.jsonl"),
        text=Stage(128, 7, 0.01, 2),
        self_text=Stage(256, 9, 0.02, 3),
        writing=SelfText(99, 5, 30, 40, (0.0, 0.25), 0.75),
        batch_tokens=1024,
        gradient_accumulation=2,
        loss="reverse-kl",
        optimizer="muon",
        dtype="fp32",
        device="cpu",
        seed=11,
        evaluate_every=3,
        patience=4,
        checkpoint_every=5,
        keep_states_gb=1.5,
        target_formats=ModelFormats("int4", "f16", "int8"),
        evaluation_prompts=Path("prompts.jsonl"),
        evaluation_tokens=17,
        data_licence="GPL-2.0 AND MIT",
    )
    defaults = TrainOptions(**BASE)
    same = [
        field.name
        for field in dataclasses.fields(options)
        if getattr(options, field.name) == getattr(defaults, field.name)
    ]
    assert same == ["out", "written", "time_limit_s"]  # that of the head's shapes is above
    assert parse(command_line(options)) == options


def test_default_formats_are_not_no_formats() -> None:
    options = TrainOptions(**BASE, target_formats=ModelFormats())
    assert parse(command_line(options)) == options


@pytest.mark.parametrize("kind", SHAPES)
def test_every_option_has_a_flag(kind: str) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, kind)
    fields = {action.dest for action in parser._actions} - {"help"}
    nested = {
        "shape": SHAPES[kind],
        "text": Stage,
        "self_text": Stage,
        "writing": SelfText,
        "target_formats": ModelFormats,
    }
    expected = set()
    for field in dataclasses.fields(TrainOptions):
        inner = (
            [f"{field.name}.{part.name}" for part in dataclasses.fields(nested[field.name])]
            if field.name in nested
            else []
        )
        expected |= set(inner) or {field.name}
    assert fields == expected - (set() if kind == "draft" else {"earlier"})


def test_unknown_flag_is_an_error() -> None:
    with pytest.raises(SystemExit):
        parse("pilotfish train draft --target t --data d --out o --speed 3")
    with pytest.raises(SystemExit):
        parse("pilotfish train mlp --target t --data d --out o --tie maybe")
