"""The command line of a training run: one table of flags for parsing, and for the exact command on the card."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import Any

from pilotfish.exporter.contract import FORMATS
from pilotfish.exporter.options import ModelFormats

from .flags import Flag, flags_of, numbers, paths
from .options import DEVICES, DTYPES, LOSSES, OPTIMIZERS, SelfText, TrainOptions
from .shapes import SHAPES

PROGRAM = "pilotfish train"
HELP = {kind: shape.summary for kind, shape in SHAPES.items()}
_OF_DRAFTS = (
    Flag("--initial-draft", "initial", Path, "start from this draft's weights"),
    Flag("--earlier", "earlier", paths, "train where none of these drafts, comma-separated, agrees with the target"),
)
_OF_HEADS = (Flag("--initial-head", "initial", Path, "start from this head's weights"),)
_FLAGS = (
    Flag("--target", "target", str, "hub id, folder or .gguf file of the target"),
    Flag("--data", "data", Path, "text file, or folder of .txt and .md files"),
    Flag("--out", "out", Path, "folder of what is trained and of the state to continue from"),
    Flag("--text-length", "text.length", int, "tokens of a row of ordinary text"),
    Flag("--text-steps", "text.steps", int, "optimizer steps on ordinary text"),
    Flag("--text-rate", "text.learning_rate", float, "peak learning rate on ordinary text"),
    Flag("--text-warmup", "text.warmup_steps", int, "steps until that peak"),
    Flag("--self-text-length", "self_text.length", int, "tokens of a row of self-written text"),
    Flag("--self-text-steps", "self_text.steps", int, "optimizer steps on self-written text"),
    Flag("--self-text-rate", "self_text.learning_rate", float, "peak learning rate on self-written text"),
    Flag("--self-text-warmup", "self_text.warmup_steps", int, "steps until that peak"),
    Flag("--write-tokens", "writing.tokens", int, "answer tokens that the target writes"),
    Flag("--write-batch", "writing.batch", int, "conversations written together"),
    Flag("--write-prompt", "writing.prompt_tokens", int, "longest prompt, template included"),
    Flag("--write-answer", "writing.answer_tokens", int, "longest answer"),
    Flag("--write-temperatures", "writing.temperatures", numbers, "comma-separated, taken in turn; 0 is greedy"),
    Flag("--excerpt-share", "writing.excerpt_share", float, "share of user turns that quote the training text"),
    Flag(
        "--user-turns", "user_turns", Path, 'JSON lines with "prompt" and "category": to answer before turns of its own'
    ),
    Flag("--written", "written", Path, "take the self-written text of the run in this folder"),
    Flag("--batch-tokens", "batch_tokens", int, "tokens of an optimizer step over all processes"),
    Flag("--accumulate", "gradient_accumulation", int, "passes that a step is split into"),
    Flag("--loss", "loss", str, "divergence to minimise", LOSSES),
    Flag("--optimizer", "optimizer", str, "muon: for the matrices of hidden layers", OPTIMIZERS),
    Flag("--dtype", "dtype", str, "default: bf16 on a GPU, fp32 elsewhere", DTYPES),
    Flag("--device", "device", str, "auto takes a GPU if there is one", DEVICES),
    Flag("--seed", "seed", int, "of weights, order and sampling"),
    Flag("--evaluate-every", "evaluate_every", int, "steps between held-out evaluations"),
    Flag("--patience", "patience", int, "evaluations without gain before a stage ends"),
    Flag("--checkpoint-every", "checkpoint_every", int, "steps between checkpoints"),
    Flag("--keep-states", "keep_states_gb", float, "GB of a device's memory for states of the target"),
    Flag("--target-linear", "target_formats.linear", str, "train against stored weights: projections", FORMATS),
    Flag("--target-embedding", "target_formats.embedding", str, "the same for the embedding", FORMATS),
    Flag("--target-head", "target_formats.lm_head", str, "the same for the output head", FORMATS),
    Flag("--evaluation-prompts", "evaluation_prompts", Path, 'JSON lines with "prompt" and "category"'),
    Flag("--evaluation-tokens", "evaluation_tokens", int, "greedy tokens for each evaluation prompt"),
    Flag("--data-licence", "data_licence", str, "licence of the data where its manifest.json does not say"),
    Flag("--time-limit", "time_limit_s", float, "seconds until it stops with all state saved"),
)
_REQUIRED = ("target", "data", "out")
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(TrainOptions)}
_NESTED: dict[str, Any] = {
    "text": _DEFAULTS["text"],
    "self_text": _DEFAULTS["self_text"],
    "writing": SelfText(),
    "target_formats": ModelFormats(),
}


def add_flags(parser: argparse.ArgumentParser, kind: str) -> None:
    """Adds one flag for every option of a kind; a flag that is not given keeps the option's default."""
    for flag in _flags(kind):
        parser.add_argument(
            flag.name,
            dest=flag.field,
            type=flag.type,
            choices=flag.choices,
            metavar=None if flag.choices else flag.name.rpartition("-")[2].upper(),
            help=flag.help + _default_note(flag.field, kind),
            required=flag.field in _REQUIRED,
            default=argparse.SUPPRESS,
        )


def options_of(parsed: argparse.Namespace, kind: str) -> TrainOptions:
    """Parsed flags of a kind -> options.

    Raises:
        TrainingOptionError: a value outside its range.
    """
    flat: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {"shape": {}}
    for field, value in vars(parsed).items():
        outer, _, inner = field.partition(".")
        if inner:
            nested.setdefault(outer, {})[inner] = value
        else:
            flat[field] = value
    for outer, values in nested.items():
        flat[outer] = dataclasses.replace(_nested(outer, kind), **values)
    return TrainOptions(**flat)


def command_line(options: TrainOptions) -> str:
    """The command that makes these options, one flag a line; defaults are left out."""
    lines = [f"{PROGRAM} {options.kind}"]
    for flag in _flags(options.kind):
        value = _value(options, flag.field)
        if flag.field in _REQUIRED or (value != _default(flag.field, options.kind) and flag.field != "time_limit_s"):
            lines.append(f"{flag.name} {shlex.quote(_text(value))}")
    return " \\\n  ".join(lines)


def _flags(kind: str) -> tuple[Flag, ...]:
    own, further = flags_of(SHAPES[kind], "shape"), _OF_DRAFTS if kind == "draft" else _OF_HEADS
    required = len(_REQUIRED)
    return (*_FLAGS[:required], *own, *further, *_FLAGS[required:])


def _value(options: object, field: str) -> Any:
    value = options
    for name in field.split("."):
        value = None if value is None else getattr(value, name)
    return value


def _nested(outer: str, kind: str) -> Any:
    return SHAPES[kind]() if outer == "shape" else _NESTED[outer]


def _default(field: str, kind: str) -> Any:
    outer, _, inner = field.partition(".")
    if not inner:
        return _DEFAULTS[outer]
    return None if outer == "target_formats" else getattr(_nested(outer, kind), inner)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _default_note(field: str, kind: str) -> str:
    default = None if field in _REQUIRED else _default(field, kind)
    return "" if default is None or default == () else f" ({_text(default)})"
