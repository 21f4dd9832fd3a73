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

from .options import DEVICES, DTYPES, LOSSES, OPTIMIZERS, SelfText, TrainOptions
from .shapes import SHAPES

PROGRAM = "pilotfish train"
HELP = {
    "draft": "Distil a small draft model for a target.",
    "medusa": "Train Medusa heads on a target's hidden states.",
    "mlp": "Train an MLP speculator on a target's hidden states.",
    "eagle": "Train an EAGLE head on a target's hidden states.",
}


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


def _layers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in text.split(","))


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
    return text == "yes"


_DECAY = _Flag("--decay", "shape.decay", float, "weight of each further guess relative to the one before")
_TAPS = _Flag("--taps", "shape.taps", _layers, "read also the streams into these layers of the target, comma-separated")
_INITIAL = _Flag("--initial-head", "initial", Path, "start from this head's weights")
_OF_KIND = {
    "draft": (
        _Flag("--hidden", "shape.hidden_size", int, "hidden size of the draft"),
        _Flag("--layers", "shape.num_layers", int, "layers of the draft"),
        _Flag("--heads", "shape.num_heads", int, "attention heads"),
        _Flag("--kv-heads", "shape.num_kv_heads", int, "key and value heads"),
        _Flag("--ffn", "shape.ffn_size", int, "width of the feed-forward layer"),
        _Flag("--initial-draft", "initial", Path, "start from this draft's weights"),
        _Flag(
            "--earlier", "earlier", _paths, "train where none of these drafts, comma-separated, agrees with the target"
        ),
    ),
    "medusa": (
        _Flag("--num-heads", "shape.num_heads", int, "heads, each for one more token ahead"),
        _Flag("--blocks", "shape.num_blocks", int, "residual blocks of a head"),
        _Flag("--own-output", "shape.own_output", _yes_or_no, "heads have output layers of their own: yes or no"),
        _TAPS,
        _DECAY,
        _INITIAL,
    ),
    "mlp": (
        _Flag("--stages", "shape.num_stages", int, "stages, each for one more token ahead"),
        _Flag("--inner", "shape.inner_dim", int, "size of the state between stages"),
        _Flag("--tie", "shape.tie_weights", _yes_or_no, "stages share embedding, output layer and norm: yes or no"),
        _TAPS,
        _DECAY,
        _INITIAL,
    ),
    "eagle": (
        _Flag("--version", "shape.version", int, "3: taps, unrolled; 1: the last state, regression"),
        _Flag("--unroll", "shape.unroll", int, "steps over its own states that are trained"),
        _Flag("--ffn", "shape.ffn_size", int, "width of the feed-forward layer; default: the target's"),
        _Flag("--heads", "shape.num_heads", int, "attention heads; default: the target's"),
        _Flag("--kv-heads", "shape.num_kv_heads", int, "key and value heads; default: the target's"),
        _Flag("--draft-vocab", "shape.draft_vocab", int, "score so many most frequent tokens; default: all"),
        _Flag(
            "--taps", "shape.taps", _layers, "three layers of the target, comma-separated; default: 2,middle,third last"
        ),
        _DECAY,
        _Flag("--noise", "shape.noise", float, "half-width of the noise on incoming states"),
        _Flag(
            "--regression", "shape.regression", float, "version 1: weight of the distance to the target's next state"
        ),
        _INITIAL,
    ),
}


_FLAGS = (
    _Flag("--target", "target", str, "hub id, folder or .gguf file of the target"),
    _Flag("--data", "data", Path, "text file, or folder of .txt and .md files"),
    _Flag("--out", "out", Path, "folder of what is trained and of the state to continue from"),
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
    _Flag(
        "--user-turns", "user_turns", Path, 'JSON lines with "prompt" and "category": to answer before turns of its own'
    ),
    _Flag("--written", "written", Path, "take the self-written text of the run in this folder"),
    _Flag("--batch-tokens", "batch_tokens", int, "tokens of an optimizer step over all processes"),
    _Flag("--accumulate", "gradient_accumulation", int, "passes that a step is split into"),
    _Flag("--loss", "loss", str, "divergence to minimise", LOSSES),
    _Flag("--optimizer", "optimizer", str, "muon: for the matrices of hidden layers", OPTIMIZERS),
    _Flag("--dtype", "dtype", str, "default: bf16 on a GPU, fp32 elsewhere", DTYPES),
    _Flag("--device", "device", str, "auto takes a GPU if there is one", DEVICES),
    _Flag("--seed", "seed", int, "of weights, order and sampling"),
    _Flag("--evaluate-every", "evaluate_every", int, "steps between held-out evaluations"),
    _Flag("--patience", "patience", int, "evaluations without gain before a stage ends"),
    _Flag("--checkpoint-every", "checkpoint_every", int, "steps between checkpoints"),
    _Flag("--keep-states", "keep_states_gb", float, "GB of a device's memory for states of the target"),
    _Flag("--target-linear", "target_formats.linear", str, "train against stored weights: projections", FORMATS),
    _Flag("--target-embedding", "target_formats.embedding", str, "the same for the embedding", FORMATS),
    _Flag("--target-head", "target_formats.lm_head", str, "the same for the output head", FORMATS),
    _Flag("--evaluation-prompts", "evaluation_prompts", Path, 'JSON lines with "prompt" and "category"'),
    _Flag("--evaluation-tokens", "evaluation_tokens", int, "greedy tokens for each evaluation prompt"),
    _Flag("--data-licence", "data_licence", str, "licence of the data where its manifest.json does not say"),
    _Flag("--time-limit", "time_limit_s", float, "seconds until it stops with all state saved"),
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


def _flags(kind: str) -> tuple[_Flag, ...]:
    own, required = _OF_KIND[kind], len(_REQUIRED)
    return (*_FLAGS[:required], *own, *_FLAGS[required:])


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
