"""``pilotfish train``: trains drafts and heads. Imports the exporter, and with it torch, only when it runs.

Its options are those of the exporter's own table (exporter/training/command.py), which also spells the exact command on
a training card. Under ``torchrun --no-python pilotfish train eagle ...`` only the first process shows anything.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from pilotfish.bindings import InvalidArgumentError, UnsupportedError

from .console import check_json, note, write_json
from .train_report import TrainingBars, show_result

if TYPE_CHECKING:
    from pilotfish.exporter.training import TrainResult

EXIT_TIME_LIMIT = 75  # EX_TEMPFAIL: the same command continues

train = typer.Typer(help="Train a draft or a head for a target.", no_args_is_help=True, rich_markup_mode=None)


class _Parser(argparse.ArgumentParser):
    """argparse, with its errors as ours."""

    def error(self, message: str) -> NoReturn:
        """One line, as every bad input gets."""
        raise InvalidArgumentError(f"{message}; {self.prog} --help lists the options")


@train.callback()
def group() -> None:
    """Train a draft or a head for a target. The same command continues after a kill."""


def _command(kind: str, what: str) -> None:
    """Adds a command whose options the exporter lists."""

    def run(context: typer.Context) -> None:
        _train(kind, context.args)

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    train.command(kind, help=what, context_settings=settings, add_help_option=False)(run)


_command("draft", "Distil a small draft model for a target.")
_command("medusa", "Train Medusa heads: each guesses one token further.")
_command("mlp", "Train an MLP speculator: it reads its own guesses.")
_command("eagle", "Train an EAGLE head: a decoder layer on hidden states.")


def _train(kind: str, arguments: list[str]) -> None:
    try:
        from pilotfish.exporter import ExportError, training  # noqa: PLC0415 - torch takes seconds to import
        from pilotfish.exporter.training import command  # noqa: PLC0415
    except ImportError as error:
        raise UnsupportedError(f"training needs {error.name}: pip install 'pilotfish[export,train]'") from error
    parser = _Parser(prog=f"pilotfish train {kind}", description=command.HELP[kind])
    parser.add_argument("--json", metavar="FILE", dest="json", help="write the numbers as JSON; -: to stdout")
    command.add_flags(parser, kind)
    parsed = parser.parse_args(arguments)
    json_file = check_json(parsed.json)
    del parsed.json
    is_first = os.environ.get("RANK", "0") == "0"
    try:
        with TrainingBars(shown=is_first) as bars:
            result = training.train(command.options_of(parsed, kind), bars)
    except training.TimeLimitReached as limit:
        note(str(limit))
        raise typer.Exit(EXIT_TIME_LIMIT) from None
    except ExportError as error:
        raise InvalidArgumentError(str(error)) from error
    if is_first:
        show_result(result)
        write_json(json_file, _numbers(result))


def _numbers(result: TrainResult) -> dict[str, Any]:
    record = result.record
    return {
        "kind": record.kind,
        "folder": str(result.folder),
        "seconds": record.seconds,
        "held_out": {stage.name: dataclasses.asdict(stage.held_out) for stage in record.stages},
        "prompts": [dataclasses.asdict(row) for row in record.prompts],
    }
