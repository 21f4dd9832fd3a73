"""Every refusal of an option, and the command line that makes the same options."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.exporter.options import ModelFormats
from pilotfish.exporter.training import DraftShape, SelfText, Stage, TrainDraftOptions
from pilotfish.exporter.training.command import add_flags, command_line, options_of
from pilotfish.exporter.training.errors import TrainingOptionError

if TYPE_CHECKING:
    from collections.abc import Callable

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
        ({"time_limit_s": 0.0}, "time_limit_s is 0.0; it must be above 0"),
        ({"out": Path("data/draft")}, "must not contain or lie in the data"),
        ({"out": Path("data/..")}, "must not contain or lie in the data"),
    ],
)
def test_refused_options(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingOptionError, match=message):
        TrainDraftOptions(**{**BASE, **changes})


def test_batch_must_divide_by_processes() -> None:
    options = TrainDraftOptions(**BASE)
    assert options.rows_per_pass(options.text, 4) == 16
    with pytest.raises(TrainingOptionError, match="3 processes times 1 passes need a multiple of 3"):
        options.rows_per_pass(options.text, 3)


def parse(command: str) -> TrainDraftOptions:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return options_of(parser.parse_args(shlex.split(command.replace("\\\n", " "))[3:]))


def test_command_line_of_defaults_names_only_what_is_required() -> None:
    command = command_line(TrainDraftOptions(**BASE))
    assert command.split() == shlex.split("pilotfish train draft \\\\ --target t \\\\ --data data \\\\ --out out")
    assert parse(command) == TrainDraftOptions(**BASE)


def test_command_line_of_every_option() -> None:
    options = TrainDraftOptions(
        target="a target",
        data=Path("some data"),
        out=Path("out"),
        shape=DraftShape(64, 3, 2, 1, 96),
        initial_draft=Path("old draft"),
        text=Stage(128, 7, 0.01, 2),
        self_text=Stage(256, 9, 0.02, 3),
        writing=SelfText(99, 5, 30, 40, (0.0, 0.25), 0.75),
        batch_tokens=1024,
        gradient_accumulation=2,
        loss="reverse-kl",
        dtype="fp32",
        device="cpu",
        seed=11,
        evaluate_every=3,
        patience=4,
        checkpoint_every=5,
        target_formats=ModelFormats("int4", "f16", "int8"),
        evaluation_prompts=Path("prompts.jsonl"),
        evaluation_tokens=17,
        data_licence="GPL-2.0 AND MIT",
    )
    defaults = TrainDraftOptions(**BASE)
    same = [
        field.name
        for field in dataclasses.fields(options)
        if getattr(options, field.name) == getattr(defaults, field.name)
    ]
    assert same == ["out", "time_limit_s"]
    assert parse(command_line(options)) == options


def test_default_formats_are_not_no_formats() -> None:
    options = TrainDraftOptions(**BASE, target_formats=ModelFormats())
    assert parse(command_line(options)) == options


def test_every_option_has_a_flag() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    fields = {action.dest for action in parser._actions} - {"help"}
    nested = {
        "shape": DraftShape,
        "text": Stage,
        "self_text": Stage,
        "writing": SelfText,
        "target_formats": ModelFormats,
    }
    expected = set()
    for field in dataclasses.fields(TrainDraftOptions):
        inner = (
            [f"{field.name}.{part.name}" for part in dataclasses.fields(nested[field.name])]
            if field.name in nested
            else []
        )
        expected |= set(inner) or {field.name}
    assert fields == expected


def test_unknown_flag_is_an_error() -> None:
    with pytest.raises(SystemExit):
        parse("pilotfish train draft --target t --data d --out o --speed 3")
