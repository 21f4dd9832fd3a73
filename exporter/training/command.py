"""The command line of a training run: one table of flags for parsing, and for the exact command on the card."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.exporter.contract import FORMATS
from pilotfish.exporter.options import ModelFormats

from .options import DEVICES, DTYPES, LOSSES, DraftShape, SelfText, TrainDraftOptions

PROGRAM = "pilotfish train draft"


@dataclass(frozen=True, slots=True)
class _Flag:
    """A flag and the option field it sets; "text.steps" is the field of a nested dataclass."""

    name: str
    field: str
    type: Any
    help: str
    choices: tuple[str, ...] | None = None


def _temperatures(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


_FLAGS = (
    _Flag("--target", "target", str, "hub id, folder or .gguf file of the target"),
    _Flag("--data", "data", Path, "text file, or folder of .txt and .md files"),
    _Flag("--out", "out", Path, "folder of the finished draft and of the state to continue from"),
    _Flag("--hidden", "shape.hidden_size", int, "hidden size of the draft"),
    _Flag("--layers", "shape.num_layers", int, "layers of the draft"),
    _Flag("--heads", "shape.num_heads", int, "attention heads"),
    _Flag("--kv-heads", "shape.num_kv_heads", int, "key and value heads"),
    _Flag("--ffn", "shape.ffn_size", int, "width of the feed-forward layer"),
    _Flag("--initial-draft", "initial_draft", Path, "start from this draft's weights"),
    _Flag("--text-length", "text.length", int, "tokens of a row of ordinary text"),
    _Flag("--text-steps", "text.steps", int, "optimizer steps on ordinary text"),
    _Flag("--text-rate", "text.learning_rate", float, "peak learning rate on ordinary text"),
    _Flag("--text-warmup", "text.warmup_steps", int, "steps until that peak"),
    _Flag("--self-text-length", "self_text.length", int, "tokens of a row of self-written text"),
    _Flag("--self-text-steps", "self_text.steps", int, "optimizer steps on self-written text"),
    _Flag("--self-text-rate", "self_text.learning_rate", float, "peak learning rate on self-written text"),
    _Flag("--self-text-warmup", "self_text.warmup_steps", int, "steps until that peak"),
    _Flag("--write-tokens", "writing.tokens", int, "answer tokens that the target writes"),
    _Flag("--write-batch", "writing.batch", int, "conversations written together"),
    _Flag("--write-prompt", "writing.prompt_tokens", int, "longest prompt, template included"),
    _Flag("--write-answer", "writing.answer_tokens", int, "longest answer"),
    _Flag("--write-temperatures", "writing.temperatures", _temperatures, "comma-separated, taken in turn; 0 is greedy"),
    _Flag("--excerpt-share", "writing.excerpt_share", float, "share of user turns that quote the training text"),
    _Flag("--batch-tokens", "batch_tokens", int, "tokens of an optimizer step over all processes"),
    _Flag("--accumulate", "gradient_accumulation", int, "passes that a step is split into"),
    _Flag("--loss", "loss", str, "divergence to minimise", LOSSES),
    _Flag("--dtype", "dtype", str, "default: bf16 on a GPU, fp32 elsewhere", DTYPES),
    _Flag("--device", "device", str, "auto takes a GPU if there is one", DEVICES),
    _Flag("--seed", "seed", int, "of weights, order and sampling"),
    _Flag("--evaluate-every", "evaluate_every", int, "steps between held-out evaluations"),
    _Flag("--patience", "patience", int, "evaluations without gain before a stage ends"),
    _Flag("--checkpoint-every", "checkpoint_every", int, "steps between checkpoints"),
    _Flag("--target-linear", "target_formats.linear", str, "train against stored weights: projections", FORMATS),
    _Flag("--target-embedding", "target_formats.embedding", str, "the same for the embedding", FORMATS),
    _Flag("--target-head", "target_formats.lm_head", str, "the same for the output head", FORMATS),
    _Flag("--evaluation-prompts", "evaluation_prompts", Path, 'JSON lines with "prompt" and "category"'),
    _Flag("--evaluation-tokens", "evaluation_tokens", int, "greedy tokens for each evaluation prompt"),
    _Flag("--data-licence", "data_licence", str, "licence of the data where its manifest.json does not say"),
    _Flag("--time-limit", "time_limit_s", float, "seconds until it stops with all state saved"),
)
_REQUIRED = ("target", "data", "out")
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(TrainDraftOptions)}
_NESTED: dict[str, Any] = {
    "shape": DraftShape(),
    "text": _DEFAULTS["text"],
    "self_text": _DEFAULTS["self_text"],
    "writing": SelfText(),
    "target_formats": ModelFormats(),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds one flag for every option; a flag that is not given keeps the option's default."""
    for flag in _FLAGS:
        parser.add_argument(
            flag.name,
            dest=flag.field,
            type=flag.type,
            choices=flag.choices,
            metavar=None if flag.choices else flag.name.rpartition("-")[2].upper(),
            help=flag.help + _default_note(flag.field),
            required=flag.field in _REQUIRED,
            default=argparse.SUPPRESS,
        )


def options_of(parsed: argparse.Namespace) -> TrainDraftOptions:
    """Parsed flags -> options.

    Raises:
        TrainingOptionError: a value outside its range.
    """
    flat: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for field, value in vars(parsed).items():
        outer, _, inner = field.partition(".")
        if inner:
            nested.setdefault(outer, {})[inner] = value
        else:
            flat[field] = value
    for outer, values in nested.items():
        flat[outer] = dataclasses.replace(_NESTED[outer], **values)
    return TrainDraftOptions(**flat)


def command_line(options: TrainDraftOptions) -> str:
    """The command that makes these options, one flag a line; defaults are left out."""
    lines = [PROGRAM]
    for flag in _FLAGS:
        value = _value(options, flag.field)
        if flag.field in _REQUIRED or (value != _default(flag.field) and flag.field != "time_limit_s"):
            lines.append(f"{flag.name} {shlex.quote(_text(value))}")
    return " \\\n  ".join(lines)


def _value(options: object, field: str) -> Any:
    value = options
    for name in field.split("."):
        value = None if value is None else getattr(value, name)
    return value


def _default(field: str) -> Any:
    outer, _, inner = field.partition(".")
    if not inner:
        return _DEFAULTS[outer]
    return None if outer == "target_formats" else getattr(_NESTED[outer], inner)


def _text(value: Any) -> str:
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _default_note(field: str) -> str:
    default = None if field in _REQUIRED else _default(field)
    return "" if default is None else f" ({_text(default)})"
